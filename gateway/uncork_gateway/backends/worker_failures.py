"""Describes the progress of starting workers, and the reasons why none is ready."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uncork_dispatcher.wording import plural

_LONG_S = 1.0


@dataclass(frozen=True, slots=True)
class _Death:
    index: int
    reason: str
    failures: int
    next_try_at: float


@dataclass(frozen=True, slots=True)
class WorkerStartup:
    """The current stage of a worker that is not ready.

    Attributes:
        stage: the name of the stage, such as ``setup``.
        detail: a supplement to the stage, such as `` with 32 rows``.
        since: when the stage began, by the clock.
    """

    stage: str
    detail: str
    since: float

    @property
    def doing(self) -> str:
        return self.stage + self.detail


class WorkerFailures:
    """Collects the starts, failures and deaths of workers.

    Args:
        launches: True if a supervisor starts workers.
    """

    def __init__(self, *, launches: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._nothing = "workers are starting" if launches else "waiting for workers on --worker-port"
        self._clock = clock
        self._waiting: tuple[Sequence[int], str] = (), ""
        """The indexes of workers that cannot be started at present, and why."""
        self._failed: dict[int, str] = {}
        """Failures that workers reported, by index, until they exit."""
        self._failed_standbys: dict[int, str] = {}
        self._starts: dict[int, WorkerStartup] = {}
        """Stages of workers that have connected, by index."""
        self._last: _Death | None = None
        self._deaths: dict[int, _Death] = {}
        """The last death of each worker that has not been ready since, by index."""

    def waiting(self, indexes: Sequence[int], reason: str) -> None:
        """Note which workers cannot start at present, and why."""
        self._waiting = indexes, reason

    def setting_up(self, index: int) -> None:
        self._starts[index] = WorkerStartup("setup", "", self._clock())

    def warming_up(self, index: int, api: str, rows: int) -> None:
        detail = f" with {plural(rows, 'row')}"
        self._starts[index] = WorkerStartup(f"warm-up of {api}", detail, self._clock())

    def ready(self, index: int) -> None:
        """Forget the earlier problems of a worker that now accepts batches."""
        self._starts.pop(index, None)
        self._last = None
        self._deaths.pop(index, None)

    def forget(self, index: int) -> None:
        """Forget a worker that will not start again."""
        for known in (self._failed, self._starts, self._deaths):
            known.pop(index, None)

    def failed(self, index: int, reason: str, *, standby: bool) -> None:
        """Note why a worker cannot become ready and will exit."""
        (self._failed_standbys if standby else self._failed)[index] = reason

    def why_no_standby(self, index: int) -> str | None:
        """Return and forget the failure that the standby of an index reported, if any."""
        return self._failed_standbys.pop(index, None)

    def exited(self, index: int, how: str, *, failures: int, retry_s: float) -> str | None:
        """Note the exit of a worker; return the reason to log, or None if the worker has reported it."""
        said = self._failed.pop(index, None)
        start = self._starts.pop(index, None)
        reason = said or f"worker {index} {how}{f' during {start.doing}' if start else ''}"
        self._last = self._deaths[index] = _Death(index, reason, failures, self._clock() + retry_s)
        return None if said else reason

    def disconnected(self, index: int) -> None:
        """Note that a worker without a supervisor has disconnected; no supervisor restarts it."""
        self._starts.pop(index, None)
        said = self._failed.pop(index, None) or self._failed_standbys.pop(index, None)
        if said is not None:
            self._last = _Death(index, said, 1, self._clock())

    def text(self) -> str:
        """Return why no worker is ready."""
        now = self._clock()
        indexes, reason = self._waiting
        if indexes:
            return f"{plural(len(indexes), 'worker')} waiting to be started: {reason}"
        if self._last is None:
            return self._slowest(now) or self._nothing
        text, slowest = _describe(self._last, now), self._slowest(now)
        return f"{text}; {slowest}" if slowest else text

    def missing(self) -> dict[int, str]:
        """Return the reason for each worker that cannot start, or has exited and is not ready again."""
        now = self._clock()
        indexes, reason = self._waiting
        deaths = {index: _describe(death, now) for index, death in self._deaths.items()}
        return deaths | {index: f"worker {index} is waiting to be started: {reason}" for index in indexes}

    def starts(self) -> dict[int, WorkerStartup]:
        """Return the current stages of workers that are not ready, by index; none during imports."""
        return dict(self._starts)

    def _slowest(self, now: float) -> str:
        """Return a clause on the worker that has been in one stage longest, if that is long."""
        if not self._starts:
            return ""
        index, start = min(self._starts.items(), key=lambda item: item[1].since)
        lasts_s = now - start.since
        return f"worker {index} has been in {start.doing} for {lasts_s:.0f} s" if lasts_s >= _LONG_S else ""


def _describe(death: _Death, now: float) -> str:
    if death.failures <= 1:
        return death.reason
    left_s = death.next_try_at - now
    next_try = f"retrying in {left_s:.0f} s" if left_s >= _LONG_S else "retrying"
    return f"{death.reason} ({death.failures} times in a row; {next_try})"
