"""Logs refused peers, with few enough lines that a flood of peers does not fill the log."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from uncork_workers.wire.handshake import printable

log = logging.getLogger("uncork.gateway")

_EVERY_S = 60.0


@dataclass(slots=True)
class _Unlogged:
    """The refusals for one reason that have not been logged."""

    timer: asyncio.TimerHandle
    count: int = 0
    last: str = ""


class RefusalLog:
    """Logs the first refusal for each reason and, a minute later, the number of further refusals.

    Create it inside a running event loop.
    """

    def __init__(self) -> None:
        self._unlogged: dict[str, _Unlogged] = {}
        """By reason, where one was logged within the last minute."""

    def refused(self, reason: str, peer: str, message: str) -> None:
        """Note that a peer was refused; ``message`` may contain the peer's own text."""
        line = f"{peer}: {printable(message)}"
        unlogged = self._unlogged.get(reason)
        if unlogged is not None:
            unlogged.count += 1
            unlogged.last = line
            return
        log.warning("refused a worker from %s", line)
        self._begin_minute(reason)

    def close(self) -> None:
        """Log the refusals that have not been logged."""
        for reason, unlogged in self._unlogged.items():
            unlogged.timer.cancel()
            self._log_rest(reason, unlogged)
        self._unlogged.clear()

    def _begin_minute(self, reason: str) -> None:
        timer = asyncio.get_running_loop().call_later(_EVERY_S, self._end_minute, reason)
        self._unlogged[reason] = _Unlogged(timer)

    def _end_minute(self, reason: str) -> None:
        unlogged = self._unlogged.pop(reason)
        if unlogged.count:
            self._log_rest(reason, unlogged)
            self._begin_minute(reason)

    def _log_rest(self, reason: str, unlogged: _Unlogged) -> None:
        if unlogged.count:
            log.warning(
                "refused %d more for the same reason (%s) within a minute, the last one from %s",
                *(unlogged.count, reason, unlogged.last),
            )
