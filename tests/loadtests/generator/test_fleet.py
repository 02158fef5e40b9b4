"""What generators say, and when they end."""

import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from uncork_loadtests.generator.fleet import LoadTestError, _Fleet
from uncork_loadtests.generator.process import Message
from uncork_loadtests.generator.share import Part
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(url="http://127.0.0.1/", payload=Payload(bodies=(b"1",)), rate=1.0)
PART = Part(measured_s=1.0, cpu_s=0.5, most_connections=1, first_wrong="", first_errors={400: "no row"})


class Said:
    """A process that has said some things, and ended."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.stdout = [msgspec.json.encode(message) + b"\n" for message in messages]


def heard(*messages: Message) -> Any:
    """A fleet of one generator, all of which has been heard."""
    before = set(threading.enumerate())
    fleet = _Fleet([Said(messages)])  # type: ignore[list-item]
    for listener in set(threading.enumerate()) - before:
        listener.join(10)
    return fleet


def test_a_generator_that_has_handed_over_may_end_before_the_others() -> None:
    """Its end is no failure; it was one, when another was a moment later."""
    fleet = heard(Message(ready=True), Message(part=PART))
    fleet.wait_until_ready()

    assert fleet.parts(PLAN, tell=None) == [PART]
    assert fleet._said.empty()


def test_a_generator_that_ends_without_handing_over_fails_the_run() -> None:
    """Whatever it has said before."""
    fleet = heard(Message(ready=True))
    fleet.wait_until_ready()

    with pytest.raises(LoadTestError, match="generator 0 ended too early"):
        fleet.parts(PLAN, tell=None)
