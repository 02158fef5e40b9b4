"""Describes one service, or the servers behind a proxy, for the document of ``/status``."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from uncork_dispatcher import ApiStats, AsyncDispatcher, ClassStats, Decision, WorkStats
from uncork_dispatcher.learning.measures import Padding
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.advise import advice_for
from uncork_gateway.pages.status.explain import sentence, waits_for, why_refused, why_this_size
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import OWN_SLOTS, PROXY, SERVICE, Names
from uncork_gateway.pages.status.scaling import describe_scaling
from uncork_gateway.pages.status.slots import describe_slots, overall
from uncork_gateway.telemetry.recent import Recent
from uncork_gateway.telemetry.recorder import Recorder


class ServedApi(NamedTuple):
    """An API's own route, if any; and whether it defines a cost, and streams."""

    route: str | None = None
    weighs: bool = False
    streams: bool = False


class ScalingNow(NamedTuple):
    """The latest decision, the bounds of the number of workers, and a worker's usual startup time."""

    decision: Decision
    least: int
    most: int
    startup_s: float | None


class StatusSource(Protocol):
    """A service, or the servers behind a proxy, with the parts that the status reads."""

    @property
    def any_ready(self) -> bool:
        """True if a worker or server can run a batch."""

    @property
    def not_ready_reason(self) -> str: ...

    @property
    def server(self) -> str | None:
        """The name of the service; None until it is known."""

    @property
    def restarts(self) -> int:
        """The number of worker restarts."""

    def failure(self, api: str) -> document.Failure | None:
        """Return the latest exception of an API's handler; None if unknown."""

    def served_apis(self) -> Mapping[str, ServedApi]: ...

    def slots(self) -> Sequence[BackendSlot]:
        """Return the slots, including those that are not ready."""

    def scaling(self) -> ScalingNow | None:
        """Return the state of scaling; None if the number of workers is fixed."""


class Described(NamedTuple):
    """A service in the document's terms: the service, its workers and its APIs."""

    service: document.Service
    workers: list[document.Worker]
    apis: list[document.Api]


class ServiceStatus:
    """Describes a service, or the servers behind a proxy.

    Args:
        name: the service's name; empty in a proxy.
        prefix: the prefix of its APIs' ids.
        ready: set once a batch can run.
        shadow: returns the number of copied requests by outcome.
        is_proxy: True for the servers behind a proxy.
        has_goal: True if a latency goal is set.
        clock: returns monotonic seconds, as for dispatcher and recorder.
        wall_clock: returns seconds since 1970.
    """

    def __init__(
        self,
        source: StatusSource,
        *,
        name: Callable[[], str],
        prefix: str = "",
        ready: asyncio.Event,
        shadow: Callable[[], dict[str, int]] = dict,
        dispatcher: AsyncDispatcher[Any, Any],
        recorder: Recorder,
        is_proxy: bool = False,
        has_goal: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.source = source
        self._name = name
        self._prefix = prefix
        self._ready = ready
        self._shadow = shadow
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._names = PROXY if is_proxy else SERVICE
        self._has_goal = has_goal
        self._clock = clock
        self._wall_clock = wall_clock

    def describe(self, *, draining: bool) -> Described:
        """Describe the service at this moment. State is read once, so that all numbers agree."""
        source, work, now = self.source, self._dispatcher.work(), self._clock()
        epoch_s, slots, name = self._wall_clock(), source.slots(), self._name()
        found = list(self._figures(work, now, epoch_s, draining=draining))
        apis = [self._api(name, *each) for each in found]
        state, scaling = self._state(apis, draining=draining), source.scaling()
        service = document.Service(
            name=name,
            state=state,
            sentence=overall(state, source.not_ready_reason, slots, apis, self._names),
            restarts=source.restarts,
            utilization=_utilization([figures for figures, *_ in found], work),
            scaling=None if scaling is None else describe_scaling(*scaling),
            shadow=self._shadow() or None,
        )
        return Described(service, describe_slots(name, slots, work.running), apis)

    def figures(self, most: int) -> dict[str, Figures]:
        """Return the measurements of the first ``most`` APIs, by id."""
        work, now = self._dispatcher.work(), self._clock()
        stats = {one.name: one for one in self._dispatcher.stats()}
        names = islice((name for name in self.source.served_apis() if name in stats), most)
        return {
            self._prefix + name: Figures(
                stats=stats[name],
                recent=self._recorder.recent(name, now),
                work=work,
                goal_s=self._goal_s(stats[name]),
            )
            for name in names
        }

    def _goal_s(self, stats: ApiStats) -> float | None:
        return stats.rules.goal_s if self._has_goal else None

    def _state(self, apis: Sequence[document.Api], *, draining: bool) -> document.State:
        if draining:
            return "draining"
        if not self.source.any_ready:
            return "not_ready" if self._ready.is_set() else "starting"
        states = {api.state for api in apis}
        return "failing" if "failing" in states else "degraded" if "degraded" in states else "ready"

    def _api(
        self, service: str, figures: Figures, served: ServedApi, failure: document.Failure | None
    ) -> document.Api:
        name = figures.stats.name
        found: list[document.RequestClass] = []
        if figures.stats.bulk is not None and (classes := self._recorder.classes(name)) is not None:
            recent = self._recorder.recent_bulk(name, self._clock())
            found = _classes(classes, figures, figures.stats.bulk, recent)
        names = OWN_SLOTS if figures.stats.rules.concurrency > 1 else self._names
        return _api(figures, served, failure, names, found, service=service, key=self._prefix + name)

    def _figures(
        self, work: WorkStats, now: float, epoch_s: float, *, draining: bool
    ) -> Iterator[tuple[Figures, ServedApi, document.Failure | None]]:
        """Yield each API's measurements, the API itself, and its handler's latest exception."""
        source, stats = self.source, {one.name: one for one in self._dispatcher.stats()}
        recent = {name: self._recorder.recent(name, now) for name in stats}
        sharing = {name: recent[name] for name, one in stats.items() if one.rules.shares_workers}
        for name, served in source.served_apis().items():
            if name not in stats:
                continue
            one = stats[name]
            neighbors = sharing if one.rules.shares_workers else {name: recent[name]}
            running = [batch for batch in work.running if batch.api in neighbors]
            own = WorkStats(one.workers, one.idle, running)
            others = _shares_of_others(name, neighbors, workers=own.workers)
            failure = source.failure(name)
            is_recent = failure is not None and failure.last >= epoch_s - recent[name].seconds
            figures = Figures(
                stats=one,
                recent=recent[name],
                work=own,
                goal_s=self._goal_s(one),
                weighs=served.weighs,
                streams=served.streams,
                others_share=min(1.0, sum(others.values())),
                busiest_other=max(others, key=lambda other: others[other], default=None),
                longest_other=max(
                    [(other, neighbors[other].run_s) for other in others], key=itemgetter(1), default=None
                ),
                draining=draining,
                not_ready_reason=source.not_ready_reason,
                failure=failure if is_recent else None,
            )
            yield figures, served, failure


def _shares_of_others(name: str, recent: Mapping[str, Recent], *, workers: int) -> dict[str, float]:
    """Return the share of worker time that each API other than ``name`` took.

    The shares refer to the longest window, because an API that began a second ago has a short window.
    """
    return {
        other: one.counts.batch_duration.sum / (max(recent[name].seconds, one.seconds) * workers)
        for other, one in recent.items()
        if other != name and one.batches and one.seconds > 0 and workers
    }


def _utilization(apis: Sequence[Figures], work: WorkStats) -> float | None:
    """Return the share of worker time that batches took in the longest window, running batches included.

    An API with slots of its own counts with the share of its slots' time, if that is more.
    """
    seconds = max((one.recent.seconds for one in apis), default=0.0)
    if not work.workers or seconds <= 0:
        return None
    concurrency = {one.stats.name: one.stats.rules.concurrency for one in apis}
    taken_s = {one.stats.name: one.recent.counts.batch_duration.sum for one in apis}
    for batch in work.running:
        taken_s[batch.api] = taken_s.get(batch.api, 0.0) + min(batch.running_s, seconds)
    own_s = [taken / concurrency[name] for name, taken in taken_s.items() if concurrency.get(name, 1) > 1]
    shared_s = sum(taken for name, taken in taken_s.items() if concurrency.get(name, 1) == 1)
    return min(1.0, max([shared_s, *own_s]) / (work.workers * seconds))


def _api(
    figures: Figures,
    served: ServedApi,
    failure: document.Failure | None,
    names: Names,
    classes: list[document.RequestClass],
    *,
    service: str,
    key: str,
) -> document.Api:
    stats, recent, counts = figures.stats, figures.recent, figures.recent.counts
    return document.Api(
        id=key,
        service=service,
        name=stats.name,
        route=served.route,
        streams=served.streams,
        counts="cost" if served.weighs else "rows",
        policy=stats.rules.policy,
        goal_ms=None if figures.goal_s is None else figures.goal_s * 1000,
        max_batch_rows=figures.cap,
        workers=stats.workers,
        state=figures.state,
        sentence=sentence(figures, names),
        waits_for=waits_for(figures, names),
        why_this_size=why_this_size(figures, names),
        why_refused=why_refused(figures, names),
        limited_by=figures.limited_by,
        advice=[document.Advice(code=one.code, text=one.text) for one in advice_for(figures, names)],
        window_s=recent.seconds,
        too_few_requests=recent.is_few,
        answered=recent.answered,
        errors=_by_status(counts.errors),
        error_share=recent.error_share if recent.answered else None,
        refused=recent.refused,
        refused_share=recent.refused_share if recent.answered else None,
        coalesced=recent.coalesced,
        coalesced_share=recent.coalesced / recent.requests if recent.requests else None,
        failure=failure,
        requests=_by_status(counts.statuses),
        protocols={name: some.total() for name, some in counts.statuses_by_protocol.items() if some},
        releases=dict(counts.releases),
        sheds=dict(counts.sheds),
        rate_rows=None if recent.is_few else recent.rate,
        capacity_rows=figures.capacity,
        capacity_is_least=figures.capacity_is_least,
        balanced_rows=figures.balanced_rows,
        estimate=_estimate(figures),
        padding=_padding(stats.padding),
        mean_batch_rows=None if recent.is_few or not recent.batches else recent.mean_rows,
        latency=_latency(recent),
        shares=_shares(recent),
        queued_requests=stats.queued_requests,
        queued_rows=stats.queued_rows,
        queued_bytes=stats.queued_bytes,
        oldest_ms=stats.oldest_s * 1000,
        classes=classes,
    )


def _classes(
    names: tuple[str, str], figures: Figures, bulk: ClassStats, recent: Recent
) -> list[document.RequestClass]:
    rules = figures.stats.rules
    first = _class(names[0], figures.recent, figures.stats, rules.goal_s, None)
    return [first, _class(names[1], recent, bulk, rules.bulk_goal_s, figures.bulk_limited_by)]


def _class(
    name: str,
    recent: Recent,
    queue: ApiStats | ClassStats,
    goal_s: float | None,
    limited_by: document.BulkLimit | None,
) -> document.RequestClass:
    return document.RequestClass(
        name=name,
        goal_ms=None if goal_s is None or goal_s == math.inf else goal_s * 1000,
        answered=recent.answered,
        refused=recent.refused,
        sheds=dict(recent.counts.sheds),
        rate_rows=None if recent.is_few else recent.rate,
        latency=_latency(recent),
        queued_requests=queue.queued_requests,
        queued_rows=queue.queued_rows,
        queued_bytes=queue.queued_bytes,
        oldest_ms=queue.oldest_s * 1000,
        limited_by=limited_by,
    )


def _by_status(counts: Counter[int]) -> dict[str, int]:
    return {str(status): count for status, count in sorted(counts.items())}


def _estimate(figures: Figures) -> document.Estimate | None:
    estimate, known = figures.estimate, figures.stats.known_rows
    if estimate is None or known is None:
        return None
    return document.Estimate(
        intercept_ms=estimate.intercept_s * 1000,
        slope_ms=estimate.slope_s * 1000,
        spread=estimate.spread,
        rows=known,
    )


def _padding(padding: Padding | None) -> document.Padding | None:
    if padding is None:
        return None
    limit = padding.length_limit
    return document.Padding(
        measure=padding.measure, share=padding.share, length_limit=limit if math.isfinite(limit) else None
    )


def _latency(recent: Recent) -> document.Latency | None:
    if recent.is_few:
        return None
    p50, p95, p99 = (recent.counts.duration.quantile(share) * 1000 for share in (0.5, 0.95, 0.99))
    return document.Latency(p50_ms=p50, p95_ms=p95, p99_ms=p99)


def _shares(recent: Recent) -> document.TimeShares | None:
    if recent.is_few or not recent.counts.ran:
        return None
    return document.TimeShares(
        queue_ms=recent.queue_s * 1000,
        batch_ms=recent.run_s * 1000,
        transport_ms=recent.transport_s * 1000,
    )
