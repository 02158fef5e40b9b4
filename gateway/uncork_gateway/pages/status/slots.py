"""Descriptions of a front end's slots, and of the front end as a whole."""

from collections.abc import Sequence

from uncork_dispatcher import RunningBatch
from uncork_dispatcher.plural import plural
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.formatting import are, count, ms, percent


def describe_slots(slots: Sequence[BackendSlot], running: Sequence[RunningBatch]) -> list[document.Worker]:
    batches = {batch.worker: batch for batch in running}
    return [
        document.Worker(
            index=slot.index,
            pid=slot.pid,
            url=slot.url,
            state=slot.state,
            doing=_doing(slot, batches.get(slot.number) if slot.number is not None else None),
        )
        for slot in slots
    ]


def _doing(slot: BackendSlot, batch: RunningBatch | None) -> str:
    if slot.state == "busy" and batch is not None:
        requests = "" if batch.requests == batch.rows else f" of {count(batch.requests, 'request')}"
        return f"runs {count(batch.rows, 'row')}{requests} of {batch.api}, for {ms(batch.running_s)} now"
    return slot.fault or {"idle": "waits for a batch", "busy": "ends a batch"}.get(slot.state, slot.state)


def overall(
    state: document.State, not_ready_reason: str, slots: Sequence[BackendSlot], apis: Sequence[document.Api]
) -> str:
    if state == "draining":
        return "The server is shutting down: it answers what it has accepted, and refuses the rest."
    if state in ("starting", "not_ready"):
        return f"Nothing can be answered: {not_ready_reason}."
    lost = [slot for slot in slots if slot.state in ("lost", "starting")]
    parts = [_ready(slots, lost)]
    parts += [f"{_fault(slot)}." for slot in lost if slot.fault]
    return " ".join([*parts, *filter(None, map(_notable, apis))])


def _notable(api: document.Api) -> str:
    """Describe an API that needs attention; empty for others."""
    if api.state != "ok":
        shares = {"ended in an error": api.error_share, "were refused": api.refused_share}
        parts = [f"{percent(share)} of its requests {what}" for what, share in shares.items() if share]
        return f"{api.name} is {api.state}: {', '.join(parts)}."
    return "" if api.limited_by == "nothing" else f"{api.name} is limited by {_LIMITS[api.limited_by]}."


_LIMITS: dict[document.Limit, str] = {
    "workers": "its workers",
    "goal": "its goal",
    "cap": "its batch cap",
}


def _ready(slots: Sequence[BackendSlot], lost: Sequence[BackendSlot]) -> str:
    """Describe how many workers, or servers, are ready."""
    of_servers = any(slot.url for slot in slots)
    total = len({slot.url for slot in slots}) if of_servers else len(slots)
    ready = total - len(lost)
    of_all = plural(total, "server" if of_servers else "worker")
    return f"{f'{ready} of ' if lost else ''}{of_all} {are(ready)} ready."


def _fault(slot: BackendSlot) -> str:
    """Describe a fault; that of a lost worker already names it."""
    if slot.url is not None:
        return f"{slot.url}: {slot.fault}"
    if slot.state == "starting":
        return f"Worker {slot.index} {slot.fault}"
    return slot.fault[:1].upper() + slot.fault[1:]
