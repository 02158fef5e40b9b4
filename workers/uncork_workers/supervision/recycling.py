"""Replace workers that have run many batches or use much memory."""

import asyncio
import logging
import time
from collections.abc import Callable

from uncork_workers.memory import mebibytes, resident_bytes
from uncork_workers.plural import plural
from uncork_workers.supervision.launcher import WorkerProcess, backoff_s
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor

log = logging.getLogger("uncork.gateway")

_CHECK_EVERY_S = 1.0


class Recycler:
    """Checks workers about once a second and replaces them one at a time.

    A worker that exceeds the memory limit before its first batch is kept: its successor would too.

    Attributes:
        most_batches, most_bytes: replace a worker that has finished so many batches, or uses more memory;
            None disables a limit. They may change at any time.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        most_batches: int | None = None,
        most_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor = supervisor
        self.most_batches = most_batches
        self.most_bytes = most_bytes
        self._clock = clock
        self._failures: dict[int, tuple[int, float]] = {}
        """By index of the worker: failed attempts in a row, and the time of the next one."""
        self._at_first: dict[int, int] = {}
        """The memory of the workers that exceeded the limit before their first batch, by launch."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Replace every worker that exceeds a limit, unless a failed attempt was too recent."""
        workers = self._supervisor.current_workers()
        known = self._at_first
        self._at_first = {one.launch: known[one.launch] for one in workers if one.launch in known}
        for worker in workers:
            reason = self._reason(worker)
            if reason and self._clock() >= self._failures.get(worker.index, (0, 0.0))[1]:
                await self._recycle(worker, reason)

    def _reason(self, worker: WorkerProcess) -> str:
        """Return why to replace a worker; empty if there is no reason."""
        if not worker.batches or worker.ended.done():
            return ""
        limit_bytes = self.most_bytes
        if self.most_batches is not None and worker.batches >= self.most_batches:
            return f"has run {plural(worker.batches, 'batch', 'batches')}"
        if limit_bytes is None or worker.pid is None or self._at_first.get(worker.launch, 0) > limit_bytes:
            return ""
        memory_bytes = resident_bytes(worker.pid)
        return f"uses {mebibytes(memory_bytes)}" if memory_bytes > limit_bytes else ""

    async def _recycle(self, worker: WorkerProcess, reason: str) -> None:
        index = worker.index
        try:
            if not await self._supervisor.replace(worker):
                return
        except ReplacementFailed as error:
            failures = self._failures.get(index, (0, 0.0))[0] + 1
            # Each attempt loads the service once more, next to the running workers.
            wait_s = backoff_s(failures, first_s=1.0, longest_s=60.0)
            self._failures[index] = failures, self._clock() + wait_s
            message = "worker %d %s, but replacing it failed: %s; retrying in %.0f s"
            log.error(message, index, reason, error, wait_s)
            return
        self._failures.pop(index, None)
        log.info("worker %d %s; a new worker has replaced it", index, reason)
        self._check_new_worker(index)

    def _check_new_worker(self, index: int) -> None:
        """Exempt a new worker that exceeds the memory limit already."""
        limit_bytes = self.most_bytes
        worker = next((one for one in self._supervisor.current_workers() if one.index == index), None)
        if worker is None or worker.pid is None:
            return
        memory_bytes = resident_bytes(worker.pid)
        if limit_bytes is not None and memory_bytes > limit_bytes:
            self._at_first[worker.launch] = memory_bytes
            log.warning(
                "worker %d uses %s before its first batch, more than the limit of %s; it will not be "
                "replaced for its memory. Raise the limit",
                *(index, mebibytes(memory_bytes), mebibytes(limit_bytes)),
            )
