"""A status builder on figures that a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.gateway.pages.status.any_figures import NOT_READY
from tests.gateway.pages.status.staged import figures, stats, work
from uncork_dispatcher import ApiStats, WorkStats
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status.api_status import ServedApi
from uncork_gateway.pages.status.document import Failure, SettingsChange, Status
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.service_status import ServiceStatus, StatusBuilder
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.recent import Recent


class Front:
    """The front end of a stage."""

    def __init__(self, stage: Stage) -> None:
        self.draining = stage.draining
        self.settings_change = stage.settings_change

    def server(self) -> str:
        return "S"


class Stage:
    """A front end, a dispatcher and a recorder with the test's figures.

    Args:
        slots: idle workers, if None.
    """

    def __init__(
        self, *apis: Figures, slots: Sequence[BackendSlot] | None = None, is_proxy: bool = False
    ) -> None:
        self._apis = apis
        self._work = apis[0].work if apis else work(1)
        self._slots = slots
        self._is_proxy = is_proxy
        self.draining = False
        self.settings_change: SettingsChange | None = None
        self.ready = asyncio.Event()
        self.ready.set()
        self.server = "S"
        self.any_ready = self._work.workers > 0
        self.not_ready_reason = NOT_READY
        self.restarts = 0
        self.now = 5000.0
        self.asked: list[float] = []

    def document(self, **options: Any) -> Status:
        return self.builder(**options).status()

    def builder(self, **options: Any) -> StatusBuilder:
        service = ServiceStatus(
            self,  # type: ignore[arg-type]
            name=lambda: "s",
            ready=self.ready,
            dispatcher=self,  # type: ignore[arg-type]
            recorder=self,  # type: ignore[arg-type]
            is_proxy=self._is_proxy,
            clock=self._clock,
            wall_clock=lambda: 1030.0,
            **options,
        )
        return StatusBuilder(
            Front(self),  # type: ignore[arg-type]
            lambda: [service],
            FinishedBatches(),
            clock=self._clock,
            wall_clock=lambda: 1030.0,
        )

    def _clock(self) -> float:
        self.now += 1
        return self.now

    # The front end

    def served_apis(self) -> dict[str, ServedApi]:
        return {one.stats.name: ServedApi(weighs=one.weighs, streams=one.streams) for one in self._apis}

    def failure(self, api: str) -> Failure | None:
        return next(one.failure for one in self._apis if one.stats.name == api)

    def slots(self) -> Sequence[BackendSlot]:
        if self._slots is not None:
            return self._slots
        return [BackendSlot(index, "idle") for index in range(self._work.workers)]

    def scaling(self) -> None:
        return None

    # The dispatcher

    def stats(self) -> list[ApiStats]:
        return [one.stats._replace(workers=one.work.workers, idle=one.work.idle) for one in self._apis]

    def work(self) -> WorkStats:
        return self._work

    # The recorder

    def recent(self, api: str, now: float) -> Recent:
        self.asked.append(now)
        return next(one.recent for one in self._apis if one.stats.name == api)


def named(name: str, window: Recent, **changes: Any) -> Figures:
    return figures(stats({"name": name}), recent=window, **changes)
