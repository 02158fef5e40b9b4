"""The asyncio shell: calls and cancellation. Timers, failures and draining have files of their own."""

from __future__ import annotations

import asyncio

import pytest

from tests.dispatcher.shell import Log, Workers, calls, dispatcher, fixed, outcomes
from uncork_dispatcher.errors import RequestExpired, RequestShed
from uncork_dispatcher.jobs import longest_queued_s
from uncork_dispatcher.rules import ApiRules

pytestmark = pytest.mark.virtual_time


async def test_a_job_says_how_much_time_is_left() -> None:
    """Until the goal, or until the client gives up; negative for one that was queued for too long."""
    workers = Workers(seconds=1.0)
    shell = dispatcher(workers, ApiRules(name="a", goal_s=0.8))
    callers = calls(shell, "v")
    await asyncio.sleep(0.1)
    callers += calls(shell, "w")
    await asyncio.sleep(0.4)
    callers += calls(shell, "x")
    with pytest.raises(RequestExpired):
        await shell.call("a", "y", client_timeout_s=0.6)
    await asyncio.gather(*callers)

    first, second = workers.jobs
    assert first.left_s == [0.8]
    assert longest_queued_s(second) == pytest.approx(0.9)
    assert dict(zip(workers.payloads[1], second.left_s, strict=True)) == {
        "w": pytest.approx(-0.1),
        "x": pytest.approx(0.3),
        "y": pytest.approx(0.1),
    }


async def test_a_profile_is_known_before_the_first_call() -> None:
    shell = dispatcher(Workers())
    shell.profile("a", 0, [(1, 0.1), (11, 0.2)])

    assert shell.stats()[0].estimate.seconds(21) == pytest.approx(0.3)


async def test_size_and_key_reach_the_core() -> None:
    """Two of 60 bytes are one too many for a batch of 100; another key is another batch."""
    workers = Workers()
    shell = dispatcher(workers, ApiRules(name="a", max_batch_bytes=100), workers=4)
    await asyncio.gather(
        *(shell.call("a", payload, size_bytes=60) for payload in "xy"),
        *(shell.call("a", payload, key="other") for payload in "zw"),
    )

    assert workers.payloads == [["x"], ["y"], ["z", "w"]]


@pytest.mark.parametrize("gone", ["x", "y", "z"])
@pytest.mark.parametrize("after", [0.02, 0.05])
async def test_a_caller_that_leaves_while_its_batch_runs_disturbs_nobody(gone: str, after: float) -> None:
    """First, middle or last, midway or as the batch ends: its mates get their results."""
    workers = Workers()
    shell = dispatcher(workers)
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(after)
    callers["xyz".index(gone)].cancel()

    expected = ["CancelledError" if payload == gone else payload.upper() for payload in "xyz"]
    assert await outcomes(callers) == expected
    assert workers.cancelled == []
    assert (await shell.call("a", "next")).result == "NEXT"


async def test_an_api_is_removed_when_its_requests_are_over() -> None:
    """Not before; callers get their answers."""
    shell = dispatcher(Workers())
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.01)
    assert not shell.remove_api("a")
    await caller

    assert shell.remove_api("a")
    assert shell.stats() == []


async def test_a_queue_is_empty_when_all_its_requests_have_started() -> None:
    """A waiter may give up; running requests need not have ended."""
    shell = dispatcher(Workers(), fixed(100))
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.02)
    leaves, waits = (asyncio.ensure_future(shell.queue_empty(["a"])) for _ in range(2))
    await asyncio.sleep(0.02)
    leaves.cancel()
    await waits

    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
    assert not caller.done()
    assert await outcomes([caller]) == ["X"]


async def test_the_observer_is_told_in_order() -> None:
    """Starts with the time that each request was queued, ends, and shed requests."""
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


async def test_a_goal_out_of_reach_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A handler of 50 ms behind a goal of 30: the log says so, and everybody is answered."""
    shell = dispatcher(Workers(), ApiRules(name="a", goal_s=0.03))
    for _ in range(10):
        assert (await shell.call("a", "x")).result == "X"

    [record] = caplog.records
    assert (record.name, record.levelname) == ("uncork.dispatcher", "WARNING")
    assert "a: even the smallest request takes 50.0 ms, longer than the goal (30 ms)" in record.message
