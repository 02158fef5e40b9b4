"""The asyncio shell: calls, cancellation and timers. Failures and draining have files of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import pytest

from uncork_dispatcher.aio import Answer, Job, Ran
from uncork_dispatcher.errors import RequestShed
from uncork_dispatcher.rules import ApiRules

from .shell import Log, Workers, calls, dispatcher, fixed, outcomes
from .virtual_loop import VirtualLoop, run

Ts = TypeVarTuple("Ts")


def test_an_answer_comes_with_its_batch() -> None:
    """The result, which batch it was in, when that ran, and how long the request was held."""

    async def main() -> Answer[str]:
        await asyncio.sleep(2.0)
        return await dispatcher(Workers()).call("a", "x", rows=3, key="k")

    answer = run(main())

    assert answer.result == "X"
    assert answer.held_s == 0.0
    assert answer.batch.started == 2.0
    assert answer.batch.seconds == pytest.approx(0.05)
    start = answer.batch.start
    assert (start.api, start.key, start.rows, start.requests) == ("a", "k", 3, (1,))


def test_callers_of_one_turn_share_a_batch() -> None:
    """Each gets its own result; the runner gets payloads and rows in order."""

    async def main() -> None:
        workers = Workers()
        shell = dispatcher(workers, workers=3)
        answers = await asyncio.gather(
            shell.call("a", "x", rows=2), shell.call("a", "y"), shell.call("a", "z", rows=5)
        )

        assert [answer.result for answer in answers] == ["X", "Y", "Z"]
        [job] = workers.jobs
        assert (job.payloads, job.rows, job.start.rows) == (["x", "y", "z"], [2, 1, 5], 8)

    run(main())


def test_callers_that_come_meanwhile_are_held() -> None:
    """For as long as the worker is busy, and each is told how long that was."""

    async def main() -> None:
        workers = Workers()
        shell = dispatcher(workers)
        callers = calls(shell, "x")
        for payload in ("y", "z"):
            await asyncio.sleep(0.02)
            callers += calls(shell, payload)

        assert await outcomes(callers) == ["X", "Y", "Z"]
        assert workers.payloads == [["x"], ["y", "z"]]
        held = [caller.result().held_s for caller in callers]
        assert held == pytest.approx([0.0, 0.03, 0.01])

    run(main())


def test_size_and_key_reach_the_core() -> None:
    """Two of 60 bytes are one too many for a batch of 100; another key is another batch."""

    async def main() -> None:
        workers = Workers()
        shell = dispatcher(workers, ApiRules(name="a", max_batch_bytes=100), workers=4)
        await asyncio.gather(
            *(shell.call("a", payload, size_bytes=60) for payload in "xy"),
            *(shell.call("a", payload, key="other") for payload in "zw"),
        )

        assert workers.payloads == [["x"], ["y"], ["z", "w"]]

    run(main())


@pytest.mark.parametrize("gone", ["x", "y", "z"])
def test_a_caller_that_leaves_while_held_disturbs_nobody(gone: str) -> None:
    """First, middle or last: its mates go without it."""

    async def main() -> None:
        workers = Workers()
        shell = dispatcher(workers)
        first = calls(shell, "first")
        await asyncio.sleep(0.01)
        held = calls(shell, "x", "y", "z")
        await asyncio.sleep(0.01)
        held["xyz".index(gone)].cancel()

        expected = ["CancelledError" if payload == gone else payload.upper() for payload in "xyz"]
        assert await outcomes(first + held) == ["FIRST", *expected]
        assert workers.payloads == [["first"], [payload for payload in "xyz" if payload != gone]]
        assert shell.stats()[0].queued_requests == 0

    run(main())


@pytest.mark.parametrize("gone", ["x", "y", "z"])
@pytest.mark.parametrize("after", [0.02, 0.05])
def test_a_caller_that_leaves_while_its_batch_runs_disturbs_nobody(gone: str, after: float) -> None:
    """First, middle or last, midway or as the batch ends: its mates get their results."""

    async def main() -> None:
        workers = Workers()
        shell = dispatcher(workers)
        callers = calls(shell, "x", "y", "z")
        await asyncio.sleep(after)
        callers["xyz".index(gone)].cancel()

        expected = ["CancelledError" if payload == gone else payload.upper() for payload in "xyz"]
        assert await outcomes(callers) == expected
        assert workers.cancelled == []
        assert (await shell.call("a", "next")).result == "NEXT"

    run(main())


def test_when_all_have_left_the_worker_is_still_waited_for() -> None:
    """The next batch does not start on a worker that is busy with a batch nobody wants."""

    async def main() -> None:
        workers = Workers()
        shell = dispatcher(workers)
        callers = calls(shell, "x", "y")
        await asyncio.sleep(0.02)
        for caller in callers:
            caller.cancel()
        answer = await shell.call("a", "z")

        assert answer.held_s == pytest.approx(0.03)
        assert await outcomes(callers) == ["CancelledError", "CancelledError"]

    run(main())


def test_a_hold_is_timed() -> None:
    """The policy's 250 ms from the arrival of the first, on the loop's timer."""

    async def main() -> None:
        shell = dispatcher(Workers(), fixed(250))
        callers = calls(shell, "x")
        await asyncio.sleep(0.1)
        callers += calls(shell, "y")
        await outcomes(callers)

        held = [caller.result().held_s for caller in callers]
        assert held == pytest.approx([0.25, 0.15])

    run(main())


def test_a_hold_that_ends_early_leaves_no_timer_behind() -> None:
    """The batch fills up before; when the old timer would fire, the batch is still running undisturbed."""

    async def main() -> None:
        workers = Workers(seconds=5.0)
        shell = dispatcher(workers, fixed(250, max_batch_rows=2, timeout_s=6.0))
        callers = calls(shell, "x")
        await asyncio.sleep(0.1)
        callers += calls(shell, "y")

        assert await outcomes(callers) == ["X", "Y"]
        assert callers[0].result().batch.seconds == pytest.approx(5.0)
        assert asyncio.get_running_loop().time() == pytest.approx(5.1)

    run(main())


class EarlyLoop(VirtualLoop):
    """A loop whose timers fire when half of the time is over; notes what was asked for."""

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
        """Far too early."""
        self.asked.append(delay)
        return super().call_later(delay / 2, callback, *args, context=context)


def test_a_timer_that_fires_early_is_taken_at_its_word() -> None:
    """The hold is over then: no second timer for the rest, and none for the rest of the rest."""

    async def main() -> list[float]:
        async def at_once(job: Job[str]) -> Ran[str]:
            return Ran(["X"])

        loop = asyncio.get_running_loop()
        assert isinstance(loop, EarlyLoop)
        shell = dispatcher(at_once, fixed(250))
        answer = await shell.call("a", "x")
        assert answer.held_s == 0.25
        # The clock is behind the core now; time does not go back for it.
        assert loop.time() == 0.125
        assert (await shell.call("a", "y")).held_s == 0.25
        return loop.asked

    hold, timeout = 0.25, 60.0
    assert run(main(), loop_factory=EarlyLoop) == pytest.approx([hold, timeout] * 2)


def test_changed_rules_are_in_force_at_once() -> None:
    """What the old policy held is released by the new one."""

    async def main() -> None:
        shell = dispatcher(Workers(), fixed(9000))
        [caller] = calls(shell, "x")
        await asyncio.sleep(0.1)
        shell.set_api(ApiRules(name="a"))

        assert (await caller).held_s == pytest.approx(0.1)

    run(main())


def test_stats_are_those_of_now() -> None:
    """What is held at the moment."""

    async def main() -> None:
        shell = dispatcher(Workers(), fixed(250))
        callers = calls(shell, "x", "y")
        await asyncio.sleep(0.1)
        assert [(each.name, each.queued_requests) for each in shell.stats()] == [("a", 2)]
        rate = shell.stats()[0].rate_rows
        await asyncio.sleep(0.1)

        assert 0 < shell.stats()[0].rate_rows < rate
        await outcomes(callers)

    run(main())


def test_the_observer_is_told_in_order() -> None:
    """What started and how long each was held, what came back, whom nobody served."""

    async def main() -> None:
        log = Log()
        shell = dispatcher(Workers(), observer=log)
        callers = calls(shell, "x")
        await asyncio.sleep(0.02)
        callers += calls(shell, "y", "z")
        await outcomes(callers)
        await shell.drain()
        with pytest.raises(RequestShed):
            await shell.call("a", "late")

        assert log.lines == [
            ("started", 1, [0.0]),
            ("ended", 1, "worked", 0.0, 0.05),
            ("started", 2, [0.03, 0.03]),
            ("ended", 2, "worked", 0.05, 0.05),
            ("shed", "a", "draining"),
        ]

    run(main())
