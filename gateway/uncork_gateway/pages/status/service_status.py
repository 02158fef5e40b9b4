"""Builds the document of ``/status`` from the services, or the servers behind a proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol

from uncork_dispatcher import ApiStats, AsyncDispatcher, WorkStats
from uncork_dispatcher.wording import are
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.api_status import ScalingNow, ServedApi, describe_api, describe_classes
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import OWN_SLOTS, PROXY, SERVICE
from uncork_gateway.pages.status.slots import describe_scaling, describe_slots, overall
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.exposition import Exposition
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.recent import WINDOW_S, Recent
from uncork_gateway.telemetry.recorder import Recorder
from uncork_workers.wire.dialing import VERSION


class Served(Protocol):
    """A service, or the servers behind a proxy, as status, metrics and readiness see it."""

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

    @property
    def not_ready(self) -> str:
        """The text for "nothing can run batches": ``not_ready_reason`` without the reason."""

    def worker_states(self) -> Sequence[str]:
        """Return the state of each worker or, in a proxy, of each call that a server may run."""

    def serves(self, api: str) -> bool:
        """Return True if an API is currently served, and not only finishing its requests."""

    def expire(self) -> None:
        """Forget APIs that are no longer served. Called before metrics are read."""


Described = tuple[document.Service, list[document.Worker], list[document.Api]]
"""A service in the document's terms, with its workers and its APIs."""


class ServiceStatus:
    """Describes a service, or the servers behind a proxy; :class:`Batching` explains what it passes on.

    Args:
        clock: returns monotonic seconds, as for dispatcher and recorder.
        wall_clock: returns seconds since 1970.
    """

    def __init__(
        self,
        source: Served,
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
        return service, describe_slots(name, slots, work.running), apis

    def figures(self, most: int) -> dict[str, Figures]:
        """Return the measurements of the first ``most`` APIs, by id."""
        running, now = self._dispatcher.work().running, self._clock()
        stats = {one.name: one for one in self._dispatcher.stats()}
        names = islice((name for name in self.source.served_apis() if name in stats), most)
        return {
            self._prefix + name: Figures(
                stats=stats[name],
                recent=self._recorder.recent(name, now),
                work=WorkStats(stats[name].workers, stats[name].idle, running),
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
            found = describe_classes(classes, figures, figures.stats.bulk, recent)
        names = OWN_SLOTS if figures.stats.rules.concurrency > 1 else self._names
        return describe_api(figures, served, failure, names, found, service=service, key=self._prefix + name)

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


# The worst comes first.
_BY_SEVERITY: Sequence[document.State] = ("not_ready", "failing", "starting", "degraded", "ready")


class Front(Protocol):
    """A front end, with the parts that its pages use. Its settings may be replaced at any time."""

    settings: ServerSettings
    status_builder: StatusBuilder
    draining: bool
    exposition: Exposition
    settings_change: document.SettingsChange | None

    def server(self) -> str | None: ...
    def unready(self, service: str | None = None, *, in_full: bool = True) -> str: ...


class StatusBuilder:
    """Builds the status of a front end.

    Args:
        services: returns the services; a proxy's servers count as one.
        batches: the finished batches of all services.
        wall_clock: returns seconds since 1970.
    """

    def __init__(
        self,
        front: Front,
        services: Callable[[], Sequence[ServiceStatus]],
        batches: FinishedBatches,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._front = front
        self._services = services
        self._clock = clock
        self._wall_clock = wall_clock
        self._made = clock()
        self.batches_after = batches.after

    def status(self) -> document.Status:
        described = [service.describe(draining=self._front.draining) for service in self._services()]
        services = [service for service, _, _ in described]
        only = services[0] if len(services) == 1 else None
        state = only.state if only else self._state(services)
        return document.Status(
            version=VERSION,
            server=self._front.server(),
            time=self._wall_clock(),
            uptime_s=self._clock() - self._made,
            window_s=WINDOW_S,
            state=state,
            sentence=only.sentence if only else _summary(state, services),
            restarts=sum(one.restarts for one in services),
            utilization=only.utilization if only else _mean_utilization(described),
            scaling=only.scaling if only else None,
            settings_change=self._front.settings_change,
            services=services,
            workers=[worker for _, workers, _ in described for worker in workers],
            apis=[api for _, _, apis in described for api in apis],
        )

    def figures(self, most: int) -> dict[str, Figures]:
        """Return the measurements of the first ``most`` APIs by id; cheap, because shares are left out."""
        found: dict[str, Figures] = {}
        for service in self._services():
            found |= service.figures(most - len(found))
        return found

    def _state(self, services: Sequence[document.Service]) -> document.State:
        if self._front.draining:
            return "draining"
        states = {service.state for service in services}
        return next((state for state in _BY_SEVERITY if state in states), "not_ready")


def _summary(state: document.State, services: Sequence[document.Service]) -> str:
    """Describe the state if there are several services, or none."""
    if not services:
        return "No service is served."
    if state == "draining":
        return services[0].sentence
    told = [f"{one.name}: {one.sentence}" for one in services if one.state != "ready"]
    ready = len(services) - sum(one.state in ("starting", "not_ready") for one in services)
    of_all = f"{len(services)}" if ready == len(services) else f"{ready} of {len(services)}"
    return " ".join([f"{of_all} services {are(ready)} ready.", *told])


def _mean_utilization(described: Sequence[Described]) -> float | None:
    """Return the services' mean utilization, weighted by workers; None if unknown for all."""
    known = [
        (service.utilization, len(workers))
        for service, workers, _ in described
        if service.utilization is not None
    ]
    workers = sum(count for _, count in known)
    return sum(share * count for share, count in known) / workers if workers else None
