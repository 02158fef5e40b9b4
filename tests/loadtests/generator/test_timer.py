"""The timer: in order, never early, and nothing after its end. Its lateness is not tested."""

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from tests.loops import HANG_S
from uncork_loadtests.generator.connections import Timer

ALARMS = ["file", "loop"] if sys.platform == "linux" else ["loop"]


def run(scene: Callable[[Timer, Callable[[], None]], None]) -> None:
    async def play() -> None:
        timer, over = Timer(), asyncio.Event()
        scene(timer, over.set)
        async with asyncio.timeout(HANG_S):
            await over.wait()
        timer.close()

    asyncio.run(play())


@pytest.fixture(params=ALARMS, autouse=True)
def alarm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "loop":
        monkeypatch.setattr(sys, "platform", "elsewhere")


def test_calls_come_in_the_order_of_their_times() -> None:
    now_s = time.monotonic()
    seen: list[tuple[int, float]] = []

    def note(number: int) -> None:
        seen.append((number, time.monotonic()))

    def scene(timer: Timer, over: Callable[[], None]) -> None:
        for number in (3, 1, 2):
            timer.call_at(now_s + number / 1000, partial(note, number))
        timer.call_at(now_s + 0.004, over)

    run(scene)

    assert [number for number, _ in seen] == [1, 2, 3]
    assert all(at_s >= now_s + number / 1000 for number, at_s in seen)


def test_what_is_past_is_called_at_once() -> None:
    seen: list[int] = []

    def scene(timer: Timer, over: Callable[[], None]) -> None:
        for number in range(50):
            timer.call_at(number / 1000, partial(seen.append, number))
        timer.call_at(1.0, over)

    run(scene)

    assert seen == list(range(50))


def test_a_call_may_ask_for_the_next() -> None:
    seen: list[float] = []

    def scene(timer: Timer, over: Callable[[], None]) -> None:
        def again() -> None:
            seen.append(time.monotonic())
            timer.call_at(seen[-1] + 0.0005, again if len(seen) < 6 else over)

        timer.call_at(0.0, again)

    run(scene)

    assert len(seen) == 6
    assert all(after - before >= 0.0005 for before, after in pairwise(seen))


async def test_a_closed_timer_calls_nothing() -> None:
    seen: list[int] = []

    timer = Timer()
    timer.call_at(0.0, partial(seen.append, 1))
    timer.close()
    for _ in range(5):
        await asyncio.sleep(0)

    assert seen == []
