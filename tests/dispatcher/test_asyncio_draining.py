"""The asyncio shell when it is drained: nobody new, everybody answered, then it returns."""

from __future__ import annotations

import asyncio

import pytest

from tests.dispatcher.shell import Workers, calls, dispatcher, fixed, outcomes
from uncork_dispatcher.errors import RequestShed
from uncork_dispatcher.rules import ApiRules

pytestmark = pytest.mark.virtual_time


async def test_draining_nothing_is_done_at_once() -> None:
    """Twice, too; and what comes then is refused."""
    shell = dispatcher(Workers())
    await shell.drain()
    await shell.drain()

    assert asyncio.get_running_loop().time() == 0.0
    with pytest.raises(RequestShed) as caught:
        await shell.call("a", "x")
    assert caught.value.reason == "draining"


async def test_draining_waits_for_what_runs_and_what_is_held() -> None:
    """The policy no longer holds; every request is answered when drain returns."""
    workers = Workers()
    shell = dispatcher(workers, fixed(9000, max_batch_rows=2))
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(0.02)
    drains = asyncio.gather(shell.drain(), shell.drain())
    await asyncio.sleep(0.02)
    assert not drains.done()
    await drains

    assert all(caller.done() for caller in callers)
    assert await outcomes(callers) == ["X", "Y", "Z"]
    assert asyncio.get_running_loop().time() == pytest.approx(0.1)


async def test_draining_ends_when_the_last_caller_leaves() -> None:
    shell = dispatcher(Workers(), ApiRules(name="a", goal_s=50.0))
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.02)
    shell.worker_lost(0)  # queued again, without a worker
    drain = asyncio.ensure_future(shell.drain())
    await asyncio.sleep(0.02)
    assert not drain.done()
    caller.cancel()
    await drain

    assert asyncio.get_running_loop().time() == pytest.approx(0.04)


async def test_draining_does_not_wait_for_a_batch_that_hangs() -> None:
    """Longer than its timeout."""
    shell = dispatcher(Workers(seconds=1e6), ApiRules(name="a", timeout_s=2.0))
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.5)
    await shell.drain()

    assert caller.done()
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert await outcomes([caller]) == ["BatchTimedOut"]


async def test_giving_up_answers_everybody_and_ends_the_drain() -> None:
    """Queued requests are not started any more; batches that run are cancelled."""
    workers = Workers(seconds=1.0)
    shell = dispatcher(workers, fixed(0, max_batch_rows=1), workers=2)
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(0.5)
    drain = asyncio.ensure_future(shell.drain())
    await asyncio.sleep(0.1)
    shell.give_up()
    assert await outcomes(callers) == ["RequestShed"] * 3
    assert asyncio.get_running_loop().time() == pytest.approx(0.6)
    assert (shell.unanswered, shell.stats()[0].queued_requests) == (0, 0)

    await asyncio.wait_for(drain, 5.0)
    assert asyncio.get_running_loop().time() == pytest.approx(0.6)
    assert (workers.payloads, workers.cancelled) == ([["x"], ["y"]], [1, 2])


async def test_giving_up_does_not_bring_a_lost_batch_back() -> None:
    """The worker dies after its request was given up; there is no second try."""
    workers = Workers(seconds=1.0)
    shell = dispatcher(workers, workers=2)
    callers = calls(shell, "x")
    await asyncio.sleep(0.5)
    shell.give_up()
    shell.worker_lost(0)
    await asyncio.wait_for(shell.drain(), 5.0)

    assert await outcomes(callers) == ["RequestShed"]
    assert workers.workers == [0]
