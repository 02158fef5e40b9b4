"""A queue of scheduled calls on one precise alarm."""

import heapq
import time
from collections.abc import Callable
from itertools import count

from uncork_dispatcher.alarm import make_alarm

# Without a limit, an overloaded generator would send on time and read its answers late, unnoticed.
_MAX_CALLS_PER_TURN = 8


class Timer:
    """Calls functions in the running event loop at times of time.monotonic()."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._alarm = make_alarm(self._on_alarm)

    def call_at(self, when_s: float, function: Callable[[], None]) -> None:
        """Call once, at `when_s` or, if that is past, as soon as possible."""
        entry = (when_s, next(self._order), function)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._alarm.set(when_s, time.monotonic())

    def close(self) -> None:
        """Drop all scheduled calls."""
        self._due.clear()
        self._alarm.close()

    def _on_alarm(self) -> None:
        for _ in range(_MAX_CALLS_PER_TURN):
            if not self._due or self._due[0][0] > time.monotonic():
                break
            heapq.heappop(self._due)[2]()
        if self._due:
            self._alarm.set(self._due[0][0], time.monotonic())
