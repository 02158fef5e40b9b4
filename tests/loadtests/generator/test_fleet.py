"""The frames of generators, and their ends."""

import io
import threading
from typing import Any

import pytest

from tests.loops import HANG_S
from uncork_loadtests.generator.fleet import Fleet
from uncork_loadtests.generator.process import Frame, encode
from uncork_loadtests.generator.share import ShareResult
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(url="http://127.0.0.1/", payload=Payload(bodies=(b"1",)), rate=1.0)
RESULT = ShareResult(
    measured_s=1.0, cpu_s=0.5, most_connections=1, first_wrong="", first_errors={400: "no row"}
)


class Ended:
    """A process that has written some frames, and ended."""

    def __init__(self, *frames: Frame) -> None:
        self.stdout = io.BytesIO(b"".join(map(encode, frames)))


def read(*frames: Frame) -> Any:
    """A fleet of one generator, all of whose frames have been read."""
    before = set(threading.enumerate())
    fleet = Fleet(PLAN, [Ended(*frames)])  # type: ignore[list-item]
    for listener in set(threading.enumerate()) - before:
        listener.join(HANG_S)
    return fleet


def test_a_generator_with_a_result_may_end_before_the_others() -> None:
    last = Frame(samples=b"x", result=RESULT)
    fleet = read(Frame(ready=True), Frame(samples=b"y"), last)
    fleet.wait_until_ready()

    assert fleet.last_frames(tell=None) == [last]
    assert fleet._frames.empty()


def test_a_generator_that_ends_without_a_result_fails_the_run() -> None:
    fleet = read(Frame(ready=True))
    fleet.wait_until_ready()

    with pytest.raises(BenchError, match="a load generator exited early"):
        fleet.last_frames(tell=None)
