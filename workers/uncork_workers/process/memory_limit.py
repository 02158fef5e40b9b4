"""Limits of a worker process's memory."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable

from uncork_workers.memory import mebibytes, resident_bytes

log = logging.getLogger("uncork.worker")


class MemoryLimit:
    """Checks the resident memory of this process.

    If the process exceeds the limit before its first batch, the limit is dropped: every restart would exceed
    it, too.

    Args:
        limit_bytes: None for no limit.
        used_bytes: returns the resident memory.
    """

    def __init__(
        self, limit_bytes: int | None, *, used_bytes: Callable[[], int] = lambda: resident_bytes(os.getpid())
    ) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = used_bytes
        self._is_checked = False

    def check_before_batches(self) -> None:
        """Drop the limit, with a warning, if the model alone exceeds it. Later calls do nothing."""
        excess = "" if self._is_checked else self.excess()
        self._is_checked = True
        if excess:
            log.warning(
                "this worker %s before its first batch; it will not leave for its memory. Raise --max-memory",
                excess,
            )
            self._limit_bytes = None

    def excess(self) -> str:
        """Return by how much the process exceeds the limit, as a clause; empty if it does not."""
        if self._limit_bytes is None or (used := self._used_bytes()) <= self._limit_bytes:
            return ""
        return f"uses {mebibytes(used)}, more than the limit of {mebibytes(self._limit_bytes)},"


def limit_data(limit_bytes: int) -> None:
    """Let allocations of this process and its children fail that would exceed a size, as ``MemoryError``.

    Up to the limit that is set for the process anyway. Libraries in C++ may raise errors of their own.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit_bytes if most == resource.RLIM_INFINITY else min(limit_bytes, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
