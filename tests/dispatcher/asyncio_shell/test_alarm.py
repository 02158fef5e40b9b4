"""Alarms: they ring once, in time or later, and never when they were not set. How late, no test asks."""

from __future__ import annotations

import asyncio
import math
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from tests.loops import HANG_S
from uncork_dispatcher.alarm import Alarm, FileAlarm, LoopAlarm, make_alarm

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has timers that are files")
KINDS = [pytest.param(FileAlarm, marks=needs_linux), LoopAlarm]


class Bell:
    """Notes when it rings, and on which alarm."""

    def __init__(self, kind: Callable[[Callable[[], None]], Alarm]) -> None:
        self.rang: list[float] = []
        self.alarm = kind(self._ring)
        self._heard = asyncio.Event()

    def _ring(self) -> None:
        self.rang.append(time.monotonic())
        self._heard.set()

    def set(self, delay_s: float) -> float:
        """Set the alarm; when it is to ring."""
        now_s = time.monotonic()
        self.alarm.set(now_s + delay_s, now_s)
        return now_s + delay_s

    async def heard(self) -> None:
        """Wait until it rings."""
        async with asyncio.timeout(HANG_S):
            await self._heard.wait()
        self._heard.clear()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("kind", KINDS)
def test_it_rings_once_for_the_time_it_was_set_to_last(
    kind: Callable[[Callable[[], None]], Alarm], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """An earlier time replaces a later one, and a later one an earlier; a time that is past is now."""

    async def scenario() -> None:
        bell = Bell(kind)
        bell.set(1000.0)
        due = bell.set(0.002)
        await bell.heard()
        bell.set(0.001)
        later = bell.set(0.004)
        await bell.heard()
        bell.set(-1.0)
        await bell.heard()

        assert len(bell.rang) == 3
        # uvloop's own timers round to the millisecond.
        assert bell.rang[0] >= due - 0.002
        assert bell.rang[1] >= later - 0.002
        bell.alarm.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_s", [math.inf, 1e300, 2.0**64])
async def test_it_does_not_ring_when_it_is_set_to_never_or_closed(
    kind: Callable[[Callable[[], None]], Alarm], at_s: float
) -> None:
    never, closed, other = Bell(kind), Bell(kind), Bell(kind)
    for bell in (never, closed):
        bell.set(0.0)
    never.alarm.set(at_s, 0.0)
    closed.alarm.close()
    other.set(0.005)
    await other.heard()

    assert never.rang == closed.rang == []
    for bell in (never, other):
        bell.alarm.close()
    closed.alarm.close()  # twice is once


@needs_linux
async def test_a_file_is_never_early() -> None:
    """Decisions are taken at the time that was asked for, not a moment before it."""
    bell = Bell(FileAlarm)
    for _ in range(50):
        due = bell.set(0.0003)
        await bell.heard()
        assert bell.rang[-1] >= due
    bell.alarm.close()


@needs_linux
async def test_a_file_that_was_set_anew_does_not_ring() -> None:
    """The loop may report it for a time that has been replaced since."""
    bell = Bell(FileAlarm)
    assert isinstance(bell.alarm, FileAlarm)
    bell.alarm._readable()
    bell.alarm.close()
    assert bell.rang == []


@needs_linux
def test_files_are_given_back() -> None:
    async def scenario() -> FileAlarm:
        return FileAlarm(lambda: None)

    asyncio.run(scenario()).close()  # after its loop
    alarm = asyncio.run(scenario())
    link = Path(f"/proc/self/fd/{alarm._file}")
    assert "timerfd" in str(link.readlink())
    del alarm

    with suppress(OSError):
        assert "timerfd" not in str(link.readlink())


async def test_without_files_there_is_the_alarm_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be opened, with another clock than that of files, and on systems other than Linux."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert isinstance(make_alarm(lambda: None), LoopAlarm)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(make_alarm(lambda: None, clock=lambda: 0.0), LoopAlarm)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert isinstance(make_alarm(lambda: None), LoopAlarm)
