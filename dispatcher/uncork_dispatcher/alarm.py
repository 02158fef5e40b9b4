"""Alarms that are precise to about 0.1 ms on Linux.

The timers of uvloop and of epoll count whole milliseconds, the time of a batch of a fast model. Linux offers
timers as files: a file becomes readable when its timer expires, and the event loop watches it. On other
systems, alarms use the loop's own timers.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
# The kernel gets the lowest 64 bits of the seconds. Of a larger number they may be 0, a time that is past.
_NEVER_S = 2.0**62


def make_alarm(ring: Callable[[], None], *, clock: Callable[[], float] = time.monotonic) -> Alarm:
    """Return the most precise alarm available for ``clock``; the running event loop calls ``ring``."""
    if clock is time.monotonic and sys.platform == "linux":
        # Some sandboxes and full file tables refuse the file.
        with suppress(OSError):
            return FileAlarm(ring)
    return LoopAlarm(ring)


class Timer:
    """A clock that never goes back, and a timer that calls ``fires`` when that clock reaches the set time.

    Belongs to the running event loop.
    """

    def __init__(self, fires: Callable[[], object], *, clock: Callable[[], float]) -> None:
        self._fires = fires
        self._clock = clock
        self._latest = -math.inf
        self._alarm = make_alarm(self._ring, clock=clock)
        self._alarm_at = math.inf

    def now(self) -> float:
        # An alarm that rings early moves the time ahead of the clock for an instant.
        now = self._clock()
        if now > self._latest:
            self._latest = now
        return self._latest

    def set(self, at: float, now: float) -> None:
        """Fire at ``at`` instead of the time set before; the timer may also fire once before ``at``."""
        # Timeouts of batches are far away and rarely happen: one useless alarm costs less than setting it
        # for each.
        # An alarm that is due within 0.1 s is always set to the exact time.
        if at == self._alarm_at or at > self._alarm_at > now + 0.1:
            return
        self._alarm_at = at
        self._alarm.set(at, now)

    def close(self) -> None:
        self._alarm.close()

    def _ring(self) -> None:
        self._latest = max(self._latest, self._alarm_at)
        self._alarm_at = math.inf
        self._fires()


class FileAlarm:
    """An alarm that is a timerfd(2) on the clock of :func:`time.monotonic`.

    Raises:
        OSError: if the system refuses the file.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        # Python has os.timerfd_create only from 3.13 on.
        self._library = ctypes.CDLL(None, use_errno=True)
        self._file: int = self._library.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "the kernel created no timer file descriptor")
        self._ring = ring
        self._setting = (ctypes.c_long * 4)()
        """struct itimerspec: seconds and nanoseconds of the interval, 0, then of the time."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._readable)

    def set(self, when_s: float, now_s: float) -> None:
        """Ring at ``when_s`` instead of the time set before, at once if it is past; never if infinite."""
        if when_s >= _NEVER_S:
            self._setting[2:] = [0, 0]
        else:
            # All zeros would disarm the timer.
            self._setting[2:] = [max(0, int(when_s)), max(1, int(when_s % 1 * 1e9))]
        absolute = 1  # TFD_TIMER_ABSTIME
        self._library.timerfd_settime(self._file, absolute, self._setting, None)

    def close(self) -> None:
        if self._file >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        # The loop was closed before this alarm.
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)

    def _readable(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set again since
        self._ring()


class LoopAlarm:
    """An alarm with the loop's own timers, for a clock at the speed of the loop's clock."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when_s: float, now_s: float) -> None:
        """Ring in ``when_s - now_s`` seconds instead of at the time set before; never if infinite."""
        self.close()
        if when_s != math.inf:
            self._handle = self._loop.call_later(max(0.0, when_s - now_s), self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


Alarm = FileAlarm | LoopAlarm
"""Rings once after each ``set``. Belongs to the running event loop."""
