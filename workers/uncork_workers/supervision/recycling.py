"""Replaces workers that have run many batches or take much memory, before they do harm."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from uncork_workers.plural import plural
from uncork_workers.supervision.backoff import Backoff
from uncork_workers.supervision.processes import Life
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor

log = logging.getLogger("uncork.gateway")

_LOOK_EVERY_S = 1.0
# Each attempt loads the service once more, beside the workers that there are.
_RETRIES = Backoff(first_s=1.0, longest_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecyclingLimits:
    """When a worker is replaced; None: never for this reason.

    Attributes:
        batches: how many it may have finished.
        memory_bytes: how much resident memory it may have.
    """

    batches: int | None = None
    memory_bytes: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is a reason at all."""
        return self.batches is not None or self.memory_bytes is not None


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if there is no such process any more."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


class Recycler:
    """Looks at workers about once a second, and has new ones take over, one at a time.

    A worker that is above its memory before its first batch cannot be helped by another one, and goes on.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        limits: RecyclingLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor = supervisor
        self._limits = limits
        self._clock = clock
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, float] = {}
        self._too_large_anyway: set[int] = set()

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Replace every worker that is beyond a limit, if it is time to try."""
        lives = self._supervisor.current_workers()
        self._too_large_anyway.intersection_update(life.pid for life in lives)
        for life in lives:
            reason = self._reason(life)
            if reason and self._clock() >= self._not_before.get(life.index, 0.0):
                await self._recycle(life, reason)

    def _reason(self, life: Life) -> str:
        """Why a worker is to be replaced; empty if it is not."""
        if not life.batches or life.ended.done():
            return ""
        most, limits = self._limits.batches, self._limits
        if most is not None and life.batches >= most:
            return f"has run {plural(life.batches, 'batch', 'batches')}"
        if limits.memory_bytes is None or life.pid in self._too_large_anyway:
            return ""
        memory_bytes = resident_bytes(life.pid)
        return f"takes {_mib(memory_bytes)}" if memory_bytes > limits.memory_bytes else ""

    async def _recycle(self, life: Life, reason: str) -> None:
        index = life.index
        try:
            await self._supervisor.replace(index)
        except ReplacementFailed as error:
            failures = self._failures[index] = self._failures.get(index, 0) + 1
            wait_s = _RETRIES.after(failures)
            self._not_before[index] = self._clock() + wait_s
            log.error(
                "worker %d %s and goes on, for it cannot be replaced: %s; next try in %.0f s",
                *(index, reason, error, wait_s),
            )
            return
        self._failures.pop(index, None)
        log.info("worker %d %s: another has taken over", index, reason)
        self._weigh(index)

    def _weigh(self, index: int) -> None:
        """Look at a worker that has taken over just now: what it takes, every other would take too."""
        limit_bytes = self._limits.memory_bytes
        [life] = [life for life in self._supervisor.current_workers() if life.index == index]
        memory_bytes = resident_bytes(life.pid)
        if limit_bytes is not None and memory_bytes > limit_bytes:
            self._too_large_anyway.add(life.pid)
            log.warning(
                "worker %d takes %s before its first batch, more than the %s above which workers are "
                "replaced: it goes on",
                *(index, _mib(memory_bytes), _mib(limit_bytes)),
            )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
