"""What workers do before they are ready, and why none is, in words for people."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from uncork_dispatcher.plural import plural

_LONG_S = 1.0


@dataclass(frozen=True, slots=True)
class _Death:
    index: int
    reason: str
    failures: int
    next_try_at: float


@dataclass(frozen=True, slots=True)
class WorkerStartup:
    """What a worker does that is not ready yet.

    Attributes:
        stage: in a word or two, such as ``setup``.
        detail: of the stage, such as `` with 32 rows``.
        since: when it began with that, by the clock.
    """

    stage: str
    detail: str
    since: float

    @property
    def doing(self) -> str:
        """Stage and detail."""
        return self.stage + self.detail


class WorkerFailures:
    """What is heard of workers that start and end."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[int, str] = {}
        """What workers have said of themselves, by index, until they have ended."""
        self._failed_standbys: dict[int, str] = {}
        self._starts: dict[int, WorkerStartup] = {}
        """Of those that have been heard of, by index."""
        self._last: _Death | None = None
        self._deaths: dict[int, _Death] = {}
        """The last of each worker that has not been ready since, by index."""

    def setting_up(self, index: int) -> None:
        """A worker has begun to set its service up."""
        self._starts[index] = WorkerStartup("setup", "", self._clock())

    def warming_up(self, index: int, api: str, rows: int) -> None:
        """A worker calls an api with so many rows of its example."""
        detail = f" with {plural(rows, 'row')}"
        self._starts[index] = WorkerStartup(f"warm-up of {api}", detail, self._clock())

    def ready(self, index: int) -> None:
        """A worker takes batches: what was before is no reason any more."""
        self._starts.pop(index, None)
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
        start = self._starts.pop(index, None)
        reason = said or f"worker {index} {how}{f' in {start.doing}' if start else ''}"
        self._last = self._deaths[index] = _Death(index, reason, failures, self._clock() + retry_s)
        return None if said else reason

    def text(self) -> str:
        """Why no worker is ready."""
        now = self._clock()
        if self._last is None:
            return self._slowest(now) or "workers are starting"
        text, slowest = _told(self._last, now), self._slowest(now)
        return f"{text}; {slowest}" if slowest else text

    def missing(self) -> dict[int, str]:
        """What became of each worker that has ended and has not been ready since, by index."""
        now = self._clock()
        return {index: _told(death, now) for index, death in self._deaths.items()}

    def starts(self) -> dict[int, WorkerStartup]:
        """What the workers do that are not ready, by index; nothing is known of one that imports its code."""
        return dict(self._starts)

    def _slowest(self, now: float) -> str:
        """The worker that has done the same for longest, if that is worth telling."""
        if not self._starts:
            return ""
        index, start = min(self._starts.items(), key=lambda item: item[1].since)
        lasts_s = now - start.since
        return f"worker {index} is in {start.doing} for {lasts_s:.0f} s" if lasts_s >= _LONG_S else ""


def _told(death: _Death, now: float) -> str:
    if death.failures <= 1:
        return death.reason
    left_s = death.next_try_at - now
    next_try = f"next try in {left_s:.0f} s" if left_s >= _LONG_S else "trying again"
    return f"{death.reason} ({death.failures} times in a row; {next_try})"
