"""Makes the document of ``/status`` from what the parts of a front end say, when somebody asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from uncork_dispatcher import ApiStats, RunningBatch, WorkStats
from uncork_gateway.status import document
from uncork_gateway.status.advise import advise
from uncork_gateway.status.explain import limited_by, sentence, waits_for
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.reasons import why_refused, why_this_size
from uncork_gateway.status.recorder import WINDOW_S, Recent, Recorder
from uncork_gateway.status.words import Names, count, ms
from uncork_gateway.version import VERSION


class Shown(NamedTuple):
    """How an api is shown: the path of its own, if it has one, whether it gives a cost, and streams."""

    route: str | None = None
    weighs: bool = False
    streams: bool = False


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


class Displayed(Protocol):
    """A front end, as its board sees it.

    Attributes:
        draining: whether new requests are refused.
        ready: set when something has taken batches for the first time.
    """

    draining: bool
    ready: asyncio.Event

    @property
    def any_ready(self) -> bool:
        """Whether something takes batches."""
        ...

    @property
    def trouble(self) -> str:
        """Why nothing takes batches, if nothing does."""
        ...

    @property
    def server(self) -> str | None:
        """Its name; None until it is known."""
        ...

    @property
    def restarts(self) -> int:
        """Workers that were started again."""
        ...

    def shown(self) -> Mapping[str, Shown]:
        """What is served, by name."""
        ...

    def places(self) -> Sequence[Place]:
        """What runs batches, or is to."""
        ...


class Dispatching(Protocol):
    """What is asked of a dispatcher."""

    def stats(self) -> list[ApiStats]:
        """What each api holds and what is known about it."""
        ...

    def work(self) -> WorkStats:
        """Which workers there are, and what they run."""
        ...


class Board:
    """Tells how a front end is.

    Args:
        front: the front end.
        dispatcher: its dispatcher.
        recorder: what happened lately.
        names: what its users call its parts.
        has_goal: whether there is one.
        clock: seconds, for the time since it was made.
    """

    def __init__(
        self,
        front: Displayed,
        *,
        dispatcher: Dispatching,
        recorder: Recorder,
        names: Names,
        has_goal: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._front = front
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._names = names
        self._has_goal = has_goal
        self._clock = clock
        self._made = clock()
        self.batches_after = recorder.batches_after

    def status(self) -> document.Status:
        """The document, as things are now."""
        front, work = self._front, self._dispatcher.work()
        places = front.places()
        apis = [_api(figures, shown, self._names) for figures, shown in self._figures(work)]
        state = self._state()
        return document.Status(
            version=VERSION,
            server=front.server,
            time=time.time(),
            uptime_s=self._clock() - self._made,
            window_s=WINDOW_S,
            state=state,
            sentence=_overall(state, front.trouble, places, apis),
            restarts=front.restarts,
            workers=_workers(places, work.running),
            apis=apis,
        )

    def _state(self) -> document.State:
        if self._front.draining:
            return "draining"
        if self._front.any_ready:
            return "ready"
        return "not_ready" if self._front.ready.is_set() else "starting"

    def _figures(self, work: WorkStats) -> list[tuple[Figures, Shown]]:
        """Of each api that is served."""
        shown = self._front.shown()
        stats = {one.name: one for one in self._dispatcher.stats()}
        recent = {name: self._recorder.recent(name) for name in stats}
        shares = {name: share for name, one in recent.items() if (share := _share(one, work)) > 0}
        draining, trouble = self._front.draining, self._front.trouble
        figures = []
        for name, api in shown.items():
            if name not in stats:
                continue
            others = {other: share for other, share in shares.items() if other != name}
            made = Figures(
                stats=stats[name],
                recent=recent[name],
                work=work,
                goal_s=stats[name].rules.goal_s if self._has_goal else None,
                weighs=api.weighs,
                streams=api.streams,
                others_share=min(1.0, sum(others.values())),
                busiest_other=max(others, key=lambda other: others[other]) if others else None,
                draining=draining,
                trouble=trouble,
            )
            figures.append((made, api))
        return figures


def _share(recent: Recent, work: WorkStats) -> float:
    """Share of the workers' time that batches of an api took lately."""
    available_s = recent.seconds * work.workers
    return recent.batch_duration.sum / available_s if available_s > 0 else 0.0


def _api(figures: Figures, shown: Shown, names: Names) -> document.Api:
    stats, recent = figures.stats, figures.recent
    return document.Api(
        name=stats.name,
        route=shown.route,
        streams=shown.streams,
        counts="cost" if shown.weighs else "rows",
        policy=stats.rules.policy,
        goal_ms=None if figures.goal_s is None else figures.goal_s * 1000,
        max_batch_rows=figures.cap,
        sentence=sentence(figures, names),
        waits_for=waits_for(figures, names),
        why_this_size=why_this_size(figures, names),
        why_refused=why_refused(figures, names),
        limited_by=limited_by(figures),
        advice=advise(figures, names),
        rate_rows=stats.rate_rows,
        capacity_rows=figures.capacity,
        capacity_is_least=figures.capacity_is_least,
        balanced_rows=figures.balanced_rows,
        estimate=_estimate(stats),
        queued_requests=stats.queued_requests,
        queued_rows=stats.queued_rows,
        queued_bytes=stats.queued_bytes,
        oldest_ms=stats.oldest_s * 1000,
        requests={str(status): times for status, times in sorted(recent.statuses.items())},
        releases=dict(recent.releases),
        sheds=dict(recent.sheds),
        mean_batch_rows=figures.mean_rows if figures.batches else None,
        latency=_latency(recent),
        shares=_shares(figures),
    )


def _estimate(stats: ApiStats) -> document.Estimate:
    return document.Estimate(
        intercept_ms=stats.estimate.intercept_s * 1000,
        slope_ms=stats.estimate.slope_s * 1000,
        spread=stats.estimate.spread,
        rows=stats.known_rows,
    )


def _latency(recent: Recent) -> document.Latency | None:
    if not recent.duration.count:
        return None
    p50, p95, p99 = (recent.duration.quantile(share) * 1000 for share in (0.5, 0.95, 0.99))
    return document.Latency(p50_ms=p50, p95_ms=p95, p99_ms=p99)


def _shares(figures: Figures) -> document.TimeShares | None:
    if not figures.recent.ran:
        return None
    return document.TimeShares(
        queue_ms=figures.recent.queue_wait.mean * 1000,
        batch_ms=figures.run_s * 1000,
        transport_ms=figures.transport_s * 1000,
    )


def _workers(places: Sequence[Place], running: Sequence[RunningBatch]) -> list[document.Worker]:
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


def _overall(
    state: document.State,
    trouble: str,
    places: Sequence[Place],
    apis: Sequence[document.Api],
) -> str:
    if state == "draining":
        return "The server is shutting down: what was accepted is answered, the rest is refused."
    if state != "ready":
        return f"Nothing can be answered: {trouble}."
    lost = [place for place in places if place.state in ("lost", "starting")]
    parts = [_ready(places, lost)]
    parts += [f"{_told(place)}." for place in lost if place.fault]
    parts += [
        f"{api.name} is limited by {_LIMITS[api.limited_by]}." for api in apis if api.limited_by != "nothing"
    ]
    return " ".join(parts)


def _ready(places: Sequence[Place], lost: Sequence[Place]) -> str:
    """How many of the workers are ready, or of the servers."""
    of_servers = any(place.url for place in places)
    total = len({place.url for place in places}) if of_servers else len(places)
    ready = total - len(lost)
    of_all = f"{ready} of {total}" if lost else f"{ready}"
    called = ("server" if of_servers else "worker") + "s" * (total != 1)
    return f"{of_all} {called} {'is' if ready == 1 else 'are'} ready."


def _told(place: Place) -> str:
    """Of a worker of ours the fault says which one it is."""
    if place.url is not None:
        return f"{place.url}: {place.fault}"
    if place.state == "starting":
        return f"Worker {place.index} {place.fault}"
    return place.fault[:1].upper() + place.fault[1:]


_LIMITS: dict[document.Limit, str] = {
    "workers": "what runs its batches",
    "goal": "its goal",
    "cap": "its largest batch",
}
