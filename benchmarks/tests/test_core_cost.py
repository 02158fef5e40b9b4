"""The cost of a request in the core: its measurement, and that more workers add little to it."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from benchmarks.core_cost import Call, record, replay_us
from uncork_dispatcher.core import Dispatcher


@pytest.mark.parametrize("closed", [False, True])
def test_a_replay_makes_the_calls_of_the_run(closed: bool) -> None:
    """They are those of the simulation, in its order; a core that gets them does the same again."""
    calls = record(2, closed=closed, requests=200)
    names = [name for name, _, _ in calls]

    assert names[:3] == ["set_api", "worker_ready", "worker_ready"]
    assert names.count("submit") == 200
    core = Dispatcher()
    for name, args, kwargs in calls:
        getattr(core, name)(*args, **kwargs)
    assert core.is_empty
    assert replay_us(calls, 1) > 0


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True])
def test_many_workers_add_little_to_the_cost_of_a_request(closed: bool) -> None:
    """Counted in bytecode instructions: about 1,600 with 8 workers, 2,750 if clients return.

    With many workers, one is idle at nearly every arrival. The policy then decides more often, and batches
    are small, so that fewer requests share the cost of each. This adds 1,000 instructions, or 2,000 if
    clients return, however many workers there are; a step that looked at each of 512 would add far more.
    """
    few, most = (instructions(record(count, closed=closed), 2000) for count in (8, 512))

    assert most <= few + 2200


def instructions(calls: Sequence[Call], requests: int) -> float:
    """Return the instructions that a core executes per request, for the last ``requests`` requests."""
    submits = [place for place, (name, _, _) in enumerate(calls) if name == "submit"]
    first, count = submits[-requests], 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    core = Dispatcher()
    for name, args, kwargs in calls[:first]:
        getattr(core, name)(*args, **kwargs)
    before = sys.gettrace()
    try:
        for name, args, kwargs in calls[first:]:
            method = getattr(core, name)
            sys.settrace(trace)
            method(*args, **kwargs)
            sys.settrace(before)
    finally:
        sys.settrace(before)
    return count / requests
