"""The asyncio shell and its one timer, and how often it asks the core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

import pytest

from tests.dispatcher.shell import Workers, calls, dispatcher, fixed, outcomes, shout
from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.jobs import BatchResult
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.tasks import TaskRunner

pytestmark = pytest.mark.virtual_time

Ts = TypeVarTuple("Ts")


class NotingLoop(VirtualLoop):
    """A loop whose timers fire when ``share`` of the time is over; notes what was asked for."""

    share = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.asked.append(delay)
        return super().call_later(delay * self.share, callback, *args, context=context)


class EarlyLoop(NotingLoop):
    """A loop whose timers fire far too early."""

    share = 0.5


async def at_once(job: Batch[Any]) -> BatchResult[str]:
    """A runner that takes no time and no timer."""
    return shout(job)


HOLD, TIMEOUT = 0.25, 60.0


def test_a_timer_that_fires_early_is_taken_at_its_word() -> None:
    """The hold is over then: no second timer for the rest, and none for the rest of the rest."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EarlyLoop)
        shell = dispatcher(at_once, fixed(250))
        assert (await shell.call("a", "x")).queued_s == HOLD
        # The clock is behind the core now; time does not go back for it.
        assert loop.time() == HOLD / 2
        assert (await shell.call("a", "y")).queued_s == HOLD
        return loop.asked

    assert run(main(), loop_factory=EarlyLoop) == pytest.approx([HOLD, TIMEOUT] * 2)


def test_a_timer_is_set_once() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NotingLoop)
        shell = dispatcher(at_once, fixed(250))
        callers = []
        for payload in ("x", "y", "z"):
            callers += calls(shell, payload)
            for _ in range(5):
                await asyncio.sleep(0)
        await outcomes(callers)
        return loop.asked

    assert run(main(), loop_factory=NotingLoop) == pytest.approx([HOLD, TIMEOUT])


async def test_a_turn_is_polled_once() -> None:
    """However many call in it: the clock is read once for each of them and once for the poll."""
    reads = 0

    def clock() -> float:
        nonlocal reads
        reads += 1
        return 0.0

    shell = AsyncDispatcher(TaskRunner(Workers()), clock=clock)
    shell.set_api(fixed(250))
    shell.worker_ready(0)
    await asyncio.sleep(0)
    reads = 0
    callers = calls(shell, *("x" * 50))
    for _ in range(5):
        await asyncio.sleep(0)

    assert reads == 51
    assert await outcomes(callers) == ["X"] * 50
