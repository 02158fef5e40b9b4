"""A timer for event loops that is precise to about 0.1 ms.

The timers of uvloop and of epoll count whole milliseconds, too coarse for arrivals at thousands per
second. Linux has timers that are files: one becomes readable when it expires, and a loop watches
files as they are. Elsewhere the loop's own timers serve.
"""

import asyncio
import ctypes
import heapq
import os
import sys
import time
from collections.abc import Callable
from itertools import count

_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
# Calls in one turn of the loop. Were there no limit, a generator that has too much to do would send in time
# and read its answers late, and nobody would notice.
_MOST_A_TURN = 8


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """Calls functions of the running event loop at times of time.monotonic()."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._alarm = _FileAlarm(self._expired) if sys.platform == "linux" else _LoopAlarm(self._expired)

    def call_at(self, when_s: float, function: Callable[[], None]) -> None:
        """Call once, at `when_s` or, if that is past, as soon as possible."""
        entry = (when_s, next(self._order), function)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._alarm.set(when_s)

    def close(self) -> None:
        """Call nothing any more."""
        self._due.clear()
        self._alarm.close()

    def _expired(self) -> None:
        for _ in range(_MOST_A_TURN):
            if not self._due or self._due[0][0] > time.monotonic():
                break
            heapq.heappop(self._due)[2]()
        if self._due:
            self._alarm.set(self._due[0][0])


class _FileAlarm:
    """A timerfd(2): Python has it from 3.13 on, the C library everywhere."""

    def __init__(self, expired: Callable[[], None]) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._file = self._library.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timer file can be had")
        self._expired = expired
        self._setting = _Setting()
        self._reference = ctypes.byref(self._setting)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._readable)

    def set(self, when_s: float) -> None:
        """Expire at `when_s`, and not when it was set to before."""
        value = self._setting.value
        value.seconds = int(when_s)
        # All zeros would switch it off; a time that is past expires at once.
        value.nanoseconds = max(1, int(when_s % 1 * 1e9))
        self._library.timerfd_settime(self._file, _ABSOLUTE, self._reference, None)

    def close(self) -> None:
        """Give the file back."""
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _readable(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set anew since
        self._expired()


class _LoopAlarm:
    """The loop's own timers."""

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when_s: float) -> None:
        """Expire at `when_s`, and not when it was set to before."""
        self.close()
        self._handle = self._loop.call_later(max(0.0, when_s - time.monotonic()), self._expired)

    def close(self) -> None:
        """Expire no more."""
        if self._handle is not None:
            self._handle.cancel()
