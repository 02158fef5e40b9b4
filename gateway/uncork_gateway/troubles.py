"""Why no worker is ready, in words for whoever asks /readyz."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_LONG_S = 1.0


@dataclass(frozen=True, slots=True)
class _Death:
    index: int
    reason: str
    failures: int
    next_try_at: float


class Troubles:
    """What is heard of workers that start and end."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[int, str] = {}
        """What workers have said of themselves, by index, until they have ended."""
        self._failed_standbys: dict[int, str] = {}
        self._in_setup: dict[int, float] = {}
        """Since when workers are in setup, by index."""
        self._last: _Death | None = None
        self._deaths: dict[int, _Death] = {}
        """The last of each worker that has not been ready since, by index."""

    def setting_up(self, index: int) -> None:
        """A worker has begun to set its service up."""
        self._in_setup[index] = self._clock()

    def ready(self, index: int) -> None:
        """A worker takes batches: what was before is no reason any more."""
        self._in_setup.clear()
        self._last = None
        self._deaths.pop(index, None)

    def failed(self, index: int, reason: str, *, standby: bool) -> None:
        """A worker has said why it cannot be ready, and will end."""
        (self._failed_standbys if standby else self._failed)[index] = reason

    def why_no_standby(self, index: int) -> str | None:
        """What the worker said that was to take over; None if nothing. It is told once."""
        return self._failed_standbys.pop(index, None)

    def exited(self, index: int, how: str, *, failures: int, retry_s: float) -> str | None:
        """A worker has ended. Returns what to say of it, or None if it has said it itself."""
        said = self._failed.pop(index, None)
        in_setup = " in setup" if self._in_setup.pop(index, None) is not None else ""
        reason = said or f"worker {index} {how}{in_setup}"
        self._last = self._deaths[index] = _Death(index, reason, failures, self._clock() + retry_s)
        return None if said else reason

    def text(self) -> str:
        """Why no worker is ready."""
        now = self._clock()
        if self._last is None:
            return self._setups(now) or "workers are starting"
        text, setups = _told(self._last, now), self._setups(now)
        return f"{text}; {setups}" if setups else text

    def missing(self) -> dict[int, str]:
        """What became of each worker that has ended and has not been ready since, by index."""
        now = self._clock()
        return {index: _told(death, now) for index, death in self._deaths.items()}

    def _setups(self, now: float) -> str:
        """The worker that has been in setup for longest, if that is worth telling."""
        if not self._in_setup:
            return ""
        index, since = min(self._in_setup.items(), key=lambda item: item[1])
        return f"worker {index} is in setup for {now - since:.0f} s" if now - since >= _LONG_S else ""


def _told(death: _Death, now: float) -> str:
    if death.failures <= 1:
        return death.reason
    left_s = death.next_try_at - now
    next_try = f"next try in {left_s:.0f} s" if left_s >= _LONG_S else "trying again"
    return f"{death.reason} ({death.failures} times in a row; {next_try})"
