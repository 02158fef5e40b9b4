"""The workers of a front end, or the calls to servers, and the front end as a whole, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uncork_dispatcher import RunningBatch
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.formatting import count, ms, percent


@dataclass(frozen=True, slots=True)
class Place:
    """A worker, or a call that a server may run: :class:`document.Worker` without words.

    ``number`` is what the dispatcher knows it by; None if nothing can run there. ``fault`` is what there is
    to say of it if it runs no batch.
    """

    index: int
    state: str
    number: int | None = None
    pid: int | None = None
    url: str | None = None
    fault: str = ""


def in_words(places: Sequence[Place], running: Sequence[RunningBatch]) -> list[document.Worker]:
    """Describe each place."""
    batches = {batch.worker: batch for batch in running}
    return [
        document.Worker(
            index=place.index,
            pid=place.pid,
            url=place.url,
            state=place.state,
            doing=_doing(place, batches.get(place.number) if place.number is not None else None),
        )
        for place in places
    ]


def _doing(place: Place, batch: RunningBatch | None) -> str:
    if place.state == "busy" and batch is not None:
        requests = "" if batch.requests == batch.rows else f" of {count(batch.requests, 'request')}"
        return f"runs {count(batch.rows, 'row')}{requests} of {batch.api}, for {ms(batch.running_s)} now"
    return place.fault or {"idle": "waits for a batch", "busy": "ends a batch"}.get(place.state, place.state)


def overall(
    state: document.State, trouble: str, places: Sequence[Place], apis: Sequence[document.Api]
) -> str:
    """Describe the front end as a whole."""
    if state == "draining":
        return "The server is shutting down: it answers what it has accepted, and refuses the rest."
    if state in ("starting", "not_ready"):
        return f"Nothing can be answered: {trouble}."
    lost = [place for place in places if place.state in ("lost", "starting")]
    parts = [_ready(places, lost)]
    parts += [f"{_fault(place)}." for place in lost if place.fault]
    return " ".join([*parts, *filter(None, map(_notable, apis))])


def _notable(api: document.Api) -> str:
    """A sentence on an api that needs attention; empty for others."""
    if api.state != "ok":
        shares = {"ended in an error": api.error_share, "were refused": api.refused_share}
        told = [f"{percent(share)} of its requests {what}" for what, share in shares.items() if share]
        return f"{api.name} is {api.state}: {', '.join(told)}."
    return "" if api.limited_by == "nothing" else f"{api.name} is limited by {_LIMITS[api.limited_by]}."


_LIMITS: dict[document.Limit, str] = {
    "workers": "its workers",
    "goal": "its goal",
    "cap": "its batch cap",
}


def _ready(places: Sequence[Place], lost: Sequence[Place]) -> str:
    """How many workers, or servers, are ready."""
    of_servers = any(place.url for place in places)
    total = len({place.url for place in places}) if of_servers else len(places)
    ready = total - len(lost)
    of_all = f"{ready} of {total}" if lost else f"{ready}"
    called = ("server" if of_servers else "worker") + "s" * (total != 1)
    return f"{of_all} {called} {'is' if ready == 1 else 'are'} ready."


def _fault(place: Place) -> str:
    """Of a worker of ours the fault says which one it is."""
    if place.url is not None:
        return f"{place.url}: {place.fault}"
    if place.state == "starting":
        return f"Worker {place.index} {place.fault}"
    return place.fault[:1].upper() + place.fault[1:]
