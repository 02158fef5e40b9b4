"""Alarms that are precise to about 0.1 ms.

The timers of uvloop and of epoll count whole milliseconds, which is a batch of a fast model. Linux has
timers that are files: one becomes readable when it expires, and an event loop watches files as they
are. Elsewhere the loop's own timers serve.
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
from typing import Protocol

_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME


class Alarm(Protocol):
    """Rings once for each time that it is set. Belongs to the running event loop."""

    def set(self, when_s: float, now_s: float) -> None:
        """Ring at ``when_s``, and not when it was set to before; at infinity it does not ring at all."""

    def close(self) -> None:
        """Ring no more."""


def make_alarm(ring: Callable[[], None], *, clock: Callable[[], float] = time.monotonic) -> Alarm:
    """The most precise alarm that there is for a clock; ``ring`` is called by the running event loop."""
    if clock is time.monotonic and sys.platform == "linux":
        # Some sandboxes and full file tables refuse the file.
        with suppress(OSError):
            return FileAlarm(ring)
    return LoopAlarm(ring)


class FileAlarm:
    """A timerfd(2) on the clock of :func:`time.monotonic`. Python has it from 3.13 on, the C library always.

    Raises:
        OSError: if the system gives no file.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._file: int = self._library.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timer file can be had")
        self._ring = ring
        self._setting = _Setting()
        self._reference = ctypes.byref(self._setting)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._readable)

    def set(self, when_s: float, now_s: float) -> None:
        """Ring at ``when_s``; a time that is past rings at once."""
        value = self._setting.value
        if when_s == math.inf:
            value.seconds = value.nanoseconds = 0
        else:
            value.seconds = max(0, int(when_s))
            # All zeros would switch it off.
            value.nanoseconds = max(1, int(when_s % 1 * 1e9))
        self._library.timerfd_settime(self._file, _ABSOLUTE, self._reference, None)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        # The loop was closed without us.
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)

    def _readable(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set anew since
        self._ring()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class LoopAlarm:
    """The loop's own timers, for any clock that runs as fast as the loop's."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when_s: float, now_s: float) -> None:
        """Ring ``when_s - now_s`` seconds from now."""
        self.close()
        if when_s != math.inf:
            self._handle = self._loop.call_later(max(0.0, when_s - now_s), self._ring)

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
