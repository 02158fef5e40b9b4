"""Logs refused peers, with few enough lines that a flood of peers does not fill the log."""

from __future__ import annotations

import asyncio
import logging

from uncork_workers.wire.handshake import printable

log = logging.getLogger("uncork.gateway")

_EVERY_S = 60.0


class RefusalLog:
    """Logs the first refusal for each reason and, a minute later, the number of further refusals.

    Create it inside a running event loop.
    """

    def __init__(self) -> None:
        self._unlogged: dict[str, tuple[int, str]] = {}
        """The refusals since one was logged within the last minute, and the last of them, by reason."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def refused(self, reason: str, peer: str, message: str) -> None:
        """Note that a peer was refused; ``message`` may contain the peer's own text."""
        line = f"{peer}: {printable(message)}"
        if reason in self._unlogged:
            count, _ = self._unlogged[reason]
            self._unlogged[reason] = count + 1, line
        else:
            log.warning("refused a worker from %s", line)
            self._begin_minute(reason)

    def close(self) -> None:
        """Log the refusals that have not been logged."""
        for reason in list(self._unlogged):
            self._timers[reason].cancel()
            self._log_rest(reason)

    def _begin_minute(self, reason: str) -> None:
        self._unlogged[reason] = 0, ""
        self._timers[reason] = asyncio.get_running_loop().call_later(_EVERY_S, self._end_minute, reason)

    def _end_minute(self, reason: str) -> None:
        if self._log_rest(reason):
            self._begin_minute(reason)

    def _log_rest(self, reason: str) -> int:
        """Log and forget the refusals for a reason that have not been logged; return their number."""
        count, last = self._unlogged.pop(reason)
        if count:
            log.warning(
                "refused %d more for the same reason (%s) within a minute, the last one from %s",
                *(count, reason, last),
            )
        return count
