"""Builds the document of ``/status``."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from uncork_dispatcher.wording import are
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.service_status import Described, ServiceStatus
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.recent import WINDOW_S
from uncork_gateway.version import VERSION

# The worst comes first.
_BY_SEVERITY: Sequence[document.State] = ("not_ready", "failing", "starting", "degraded", "ready")


class Lifecycle(Protocol):
    """A front end, with the parts of its state that the document shows."""

    draining: bool
    settings_change: document.SettingsChange | None

    def server(self) -> str | None:
        """Return the name of the service; None until it is known."""


class StatusBuilder:
    """Builds the status of a front end.

    Args:
        services: returns the services; a proxy's servers count as one.
        batches: the finished batches of all services.
        clock: returns monotonic seconds.
        wall_clock: returns seconds since 1970.
    """

    def __init__(
        self,
        front: Lifecycle,
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
        """Return the current document."""
        described = [service.describe(draining=self._front.draining) for service in self._services()]
        services = [one.service for one in described]
        only = services[0] if len(services) == 1 else None
        state = only.state if only else self._state(services)
        return document.Status(
            version=VERSION,
            server=self._front.server(),
            time=self._wall_clock(),
            uptime_s=self._clock() - self._made,
            window_s=WINDOW_S,
            state=state,
            sentence=only.sentence if only else _sentence(state, services),
            restarts=sum(one.restarts for one in services),
            utilization=only.utilization if only else _utilization(described),
            scaling=only.scaling if only else None,
            settings_change=self._front.settings_change,
            services=services,
            workers=[worker for one in described for worker in one.workers],
            apis=[api for one in described for api in one.apis],
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


def _sentence(state: document.State, services: Sequence[document.Service]) -> str:
    """Describe the state if there are several services, or none."""
    if not services:
        return "No service is served."
    if state == "draining":
        return services[0].sentence
    told = [f"{one.name}: {one.sentence}" for one in services if one.state != "ready"]
    ready = len(services) - sum(one.state in ("starting", "not_ready") for one in services)
    of_all = f"{len(services)}" if ready == len(services) else f"{ready} of {len(services)}"
    return " ".join([f"{of_all} services {are(ready)} ready.", *told])


def _utilization(described: Sequence[Described]) -> float | None:
    """Return the services' mean utilization, weighted by workers; None if unknown for all."""
    known = [
        (one.service.utilization, len(one.workers))
        for one in described
        if one.service.utilization is not None
    ]
    workers = sum(count for _, count in known)
    return sum(share * count for share, count in known) / workers if workers else None
