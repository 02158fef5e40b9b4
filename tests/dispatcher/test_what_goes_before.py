"""Admission counts the requests that go before a new one, in the order in which batches take them."""

from __future__ import annotations

import pytest

from tests.dispatcher.driver import core_with, poll_all, start_one, starts, teach
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules


def busy(*, fair: bool = False) -> tuple[Dispatcher, float]:
    """A core whose only worker takes 0.1 s for each request and has just started one; and the time."""
    core = core_with(ApiRules(name="a", goal_s=100.0, max_batch_rows=1, fair=fair))
    now = teach(core, 0.1, batches=8)
    start_one(core, 0, now=now)
    return core, now


def reasons(core: Dispatcher, numbers: range, *, now: float, in_s: float, key: str = "") -> list[str | None]:
    """Submit requests whose clients wait ``in_s`` seconds."""
    refused = [
        core.submit(number, api="a", key=key, flow=number, now=now, expires_at=now + in_s)
        for number in numbers
    ]
    return [shed and shed.reason for shed in refused]


@pytest.mark.parametrize("fair", [False, True])
def test_a_request_that_goes_before_a_long_backlog_is_admitted(fair: bool) -> None:
    """50 requests wait 5 s; one that is due in 0.25 s is next, if they share a flow or there are no flows."""
    core, now = busy(fair=fair)
    for number in range(1, 51):
        assert core.submit(number, api="a", now=now) is None
    assert core.submit(99, api="a", now=now, expires_at=now + 0.25) is None

    core.batch_done(9, status="worked", now=now + 0.1)
    [start] = starts(poll_all(core, now + 0.1))
    assert start.requests == (99,)


@pytest.mark.parametrize("patient", [0, 50])
def test_requests_that_are_due_earlier_count(patient: int) -> None:
    """Whatever is due later: 0.1 s of the running batch, then 0.1 s for each."""
    core, now = busy()
    for number in range(1, patient + 1):
        core.submit(number, api="a", key="", now=now)

    assert reasons(core, range(100, 106), now=now, in_s=0.45) == [None, None, None, *["deadline"] * 3]
    assert reasons(core, range(110, 112), now=now, in_s=0.25) == [None, "deadline"]
    # Those that are due later are counted after the urgent ones, and those before among them.
    assert reasons(core, range(120, 122), now=now, in_s=0.65) == [None, "deadline"]


def test_a_key_waits_for_older_keys() -> None:
    """A key that is the oldest comes first; a new key comes after all that is queued."""
    core, now = busy()
    for number in range(1, 51):
        core.submit(number, api="a", key="old" if number < 40 else "newer", now=now + number / 1000)
    now += 0.05

    assert reasons(core, range(100, 102), now=now, in_s=0.4, key="old") == [None, None]
    assert reasons(core, range(110, 111), now=now, in_s=0.4, key="newer") == ["deadline"]
    assert reasons(core, range(120, 121), now=now, in_s=0.4, key="new") == ["deadline"]


def test_keys_that_came_at_one_moment_go_together() -> None:
    """0.1 s of the running batch, then 0.1 s for each request of both keys: 21 are answered in 2.2 s."""
    core, now = busy()
    told = [
        reasons(core, range(number, number + 1), now=now, in_s=2.25, key="xy"[number % 2])
        for number in range(1, 31)
    ]

    assert told == [[None]] * 21 + [["deadline"]] * 9
