"""Describes a front end's slots, and the front end as a whole."""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from uncork_dispatcher import Decision, RunningBatch, ScalingReason, ScalingState
from uncork_dispatcher.wording import are, as_sentence, capitalized, exact, ms, number, percent, plural
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.names import Names


def describe_scaling(decision: Decision, least: int, most: int, startup_s: float | None) -> document.Scaling:
    """Describe a decision on the number of workers; ``startup_s`` is how long a worker takes to start."""
    return document.Scaling(
        wanted=decision.wanted,
        target=decision.target,
        least=least,
        most=most,
        start_s=startup_s,
        state=decision.reason.state,
        sentence=_sentence(decision, least, most, startup_s),
    )


def _sentence(decision: Decision, least: int, most: int, startup_s: float | None) -> str:
    wanted, target, reason = decision
    if reason.state == "unknown":
        names = " and ".join(reason.unknown)
        return f"Too few batches of {names} have run to know how many workers the traffic needs."
    more = min(wanted, most) - target
    takes = "" if startup_s is None else f"; a start takes about {number(startup_s)} s"
    if reason.state == "asleep":
        return f"No worker runs, because no request has arrived for a while. The next one starts one{takes}."
    endings: dict[ScalingState, str] = {
        "enough": ".",
        "confirming": f". {more} more {'starts' if more == 1 else 'start'} if that is still so in 5 s.",
        "up": f". {plural(exact(target), 'worker')} {are(target)} ready or starting{takes}.",
        "at_most": f", but --workers allows at most {most}.",
        "down": f". One more worker stops; {target} {'stays' if target == 1 else 'stay'}.",
        "waiting": f". One of {target} stops in {reason.wait_s or 0:.0f} s unless the traffic rises.",
        "recent_peak": " now. A peak in the last 5 minutes needed more, so no worker stops.",
        "starting": ". No worker stops while others start.",
        "at_least": f", but --workers keeps at least {least}.",
    }
    return capitalized(_need(wanted, reason)) + endings[reason.state]


def _need(wanted: int, reason: ScalingReason) -> str:
    workers = plural(exact(wanted), "worker")
    if reason.api is None:
        return f"without traffic, {workers} {are(wanted)} enough"
    match reason.limit:
        case "goal":
            return f"the traffic needs {workers}, because of the goal of {reason.api}"
        case "throughput":
            return f"the traffic needs {workers}, because of the arrivals of {reason.api}"
        case "goal_out_of_reach":
            return (
                f"the traffic needs {workers} for the arrivals of {reason.api}, whose goal no number of "
                "workers meets"
            )
        case None:
            return f"the traffic needs {workers}"
        case _:
            assert_never(reason.limit)


def describe_slots(
    service: str, slots: Sequence[BackendSlot], running: Sequence[RunningBatch]
) -> list[document.Worker]:
    batches = {batch.worker: batch for batch in running}
    return [
        document.Worker(
            service=service,
            index=slot.index,
            pid=slot.pid,
            host=slot.host or None,
            url=slot.url,
            state=slot.state,
            doing=doing(slot, batches.get(slot.number) if slot.number is not None else None),
            gpus=[
                document.WorkerGpu(name=name, **msgspec.structs.asdict(gpu))
                for name, gpu in slot.gpus.items()
            ],
        )
        for slot in slots
    ]


def doing(slot: BackendSlot, batch: RunningBatch | None) -> str:
    """Describe a slot's activity, or its fault, in a clause."""
    if slot.state == "busy" and batch is not None:
        size = plural(exact(batch.rows), "row")
        if batch.requests != batch.rows:
            size = f"{plural(exact(batch.requests), 'request')} ({size})"
        return f"has been running {size} of {batch.api} for {ms(batch.running_s)}"
    return slot.fault or {"idle": "waits for a batch", "busy": "finishes a batch"}.get(slot.state, slot.state)


def overall(
    state: document.State,
    not_ready_reason: str,
    slots: Sequence[BackendSlot],
    apis: Sequence[document.Api],
    names: Names,
) -> str:
    if state == "draining":
        return (
            "The server is shutting down: it finishes the requests that it has accepted, and refuses others."
        )
    if state in ("starting", "not_ready"):
        return as_sentence(not_ready_reason)
    if not slots:
        return "No worker runs; the next request starts one."
    lost = [slot for slot in slots if slot.state in ("lost", "starting")]
    parts = [_ready(slots, lost), *[_fault(slot) for slot in lost if slot.fault]]
    return " ".join([*parts, *filter(None, [_notable(api, names) for api in apis])])


def _notable(api: document.Api, names: Names) -> str:
    """Describe an API that needs attention; empty for other APIs."""
    if api.state != "ok":
        parts: list[str] = []
        for share, what in ((api.error_share, "failed"), (api.refused_share, "were refused")):
            if share:
                parts.append(f"{percent(share)}{'' if parts else ' of its requests'} {what}")
        return f"{api.name} is {api.state}: {' and '.join(parts)}."
    if api.limited_by == "nothing":
        return ""
    limit = f"the number of {names.parts}" if api.limited_by == "workers" else _LIMITS[api.limited_by]
    return f"{api.name} is limited by {limit}."


_LIMITS: dict[document.Limit, str] = {"goal": "its goal", "cap": "its batch limit"}


def _ready(slots: Sequence[BackendSlot], lost: Sequence[BackendSlot]) -> str:
    """Return a sentence with the number of workers, or servers, that are ready."""
    of_servers = any(slot.url for slot in slots)
    total = len({slot.url for slot in slots}) if of_servers else len(slots)
    ready = total - len(lost)
    of_all = plural(exact(total), "server" if of_servers else "worker")
    return f"{f'{ready} of ' if lost else ''}{of_all} {are(ready)} ready."


def _fault(slot: BackendSlot) -> str:
    """Describe a slot's fault, with the server's URL; a worker's fault already names the worker."""
    if slot.url is not None:
        return f"{slot.url}: {slot.fault.rstrip('.')}."
    return as_sentence(slot.fault)
