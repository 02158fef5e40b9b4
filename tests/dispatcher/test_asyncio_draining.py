"""The asyncio shell when it is drained: nobody new, everybody answered, then it returns."""

from __future__ import annotations

import asyncio

import pytest

from tests.dispatcher.shell import Workers, calls, dispatcher, fixed, outcomes

pytestmark = pytest.mark.virtual_time


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
