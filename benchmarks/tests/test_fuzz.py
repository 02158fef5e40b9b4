"""Mutated requests follow from the seed, and failures of a server are found."""

import asyncio
from collections.abc import Iterable
from itertools import chain, repeat
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fuzz.found import Found
from benchmarks.fuzz.mutations import changed_bytes, mutated
from benchmarks.fuzz.openapi import read_statuses
from benchmarks.fuzz.run import Fuzzer, whole
from benchmarks.fuzz.seeds import EXAMPLES, Example, Seed
from tests.loadtests.fake_server import reply
from uncork_loadtests.servers import BenchError, Server

ECHO = Example("echo", (Seed(b"POST", b"/", (), b"good"),))
FINE = reply(b"fine")


@given(number=st.integers(0, 10_000), name=st.sampled_from(sorted(EXAMPLES)))
def test_a_mutation_follows_from_its_seed(number: int, name: str) -> None:
    def make() -> bytes:
        random = Random(number)
        return mutated(EXAMPLES[name]().draw(random), random)

    assert make() == make()


@pytest.mark.parametrize("name", EXAMPLES)
def test_mutations_differ_from_each_other(name: str) -> None:
    random, example = Random(1), EXAMPLES[name]()

    made = [mutated(example.draw(random), random) for _ in range(500)]

    assert len(set(made)) > 350
    assert any(b"chunked" in request for request in made)
    assert any(b"HTTP/1.1" not in request for request in made)
    assert {request.split(b" ")[0] for request in made} >= {b"POST", b"GET", b"HEAD"}


@given(data=st.binary(max_size=200), seed=st.integers(0, 1000))
def test_bytes_can_always_be_changed(data: bytes, seed: int) -> None:
    assert len(changed_bytes(data, Random(seed))) <= 2 * len(data) + 6000


class Scripted(asyncio.Protocol):
    """A server with an answer for the valid request, and another for all others."""

    def __init__(self, good: bytes, other: bytes, transports: list[asyncio.Transport]) -> None:
        self._transports = transports
        self._answers = {whole(ECHO.seeds[0]): good}
        self._other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transports.append(self._transport)

    def data_received(self, data: bytes) -> None:
        """Answer at once, whether the request is complete or not."""
        self._transport.write(self._answers.get(data, self._other))

    def eof_received(self) -> bool:
        """Stay open."""
        return True


def fuzzed(other: bytes, *, good: Iterable[bytes] = repeat(FINE)) -> Found:
    """Send requests to a server with these answers."""
    answers = iter(good)

    async def run() -> Found:
        loop = asyncio.get_running_loop()
        transports: list[asyncio.Transport] = []
        listening = await loop.create_server(
            lambda: Scripted(next(answers), other, transports), "127.0.0.1", 0
        )
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            server = Server(name="fake", command=(), port=port, pid=0)
            fuzzer = Fuzzer(server, ECHO, seed=1, tell=lambda doing: None, bound_s=0.5)
            try:
                await fuzzer.run(range(80))
            finally:
                for transport in transports:
                    transport.abort()
                await asyncio.sleep(0)
            return fuzzer.found

    return asyncio.run(run())


def test_a_server_that_refuses_what_is_wrong_has_no_faults() -> None:
    found = fuzzed(reply(b"no", status="400 Bad"))

    assert found.faults == []
    assert found.statuses.keys() == {200, 400}
    assert sum(found.statuses.values()) == 80
    assert found.neighbours == 4


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (reply(b"oh", status="500 Failed"), ": 500 b'"),
        (reply(b"oh", status="503 Busy"), ": 503 b'"),
        (b"???\r\n\r\n", "not valid HTTP"),
        (b"", "neither answered nor closed"),
    ],
)
def test_a_server_that_fails_is_found_out(other: bytes, says: str) -> None:
    faults = fuzzed(other).faults

    assert faults
    assert all(says in fault and "--first" in fault for fault in faults)


def test_a_neighbour_that_is_answered_otherwise_is_found_out() -> None:
    faults = fuzzed(reply(b"no", status="400 Bad"), good=chain([FINE], repeat(reply(b"other")))).faults

    assert len(faults) == 4
    assert all(fault.startswith("the valid request after number") for fault in faults)


def test_an_example_that_does_not_work_is_not_fuzzed() -> None:
    with pytest.raises(BenchError, match="fake does not answer a valid request"):
        fuzzed(FINE, good=repeat(reply(b"no", status="400 Bad")))


def test_the_handler_of_a_service_may_fail() -> None:
    found = fuzzed(reply(b"the handler of API 'x' failed; error id 1", status="500 Failed"))

    # Answers to HEAD have no body that could say so.
    assert [fault for fault in found.faults if "HEAD" not in fault] == []
    assert found.statuses[500]


def test_answers_are_counted_by_status() -> None:
    metrics = """
# TYPE uncork_requests_total counter
uncork_requests_total{api="a",status="200"} 3.0
uncork_requests_total{api="b",status="200"} 4.0
uncork_requests_total{api="b",status="400"} 1.0
# TYPE uncork_shed_total counter
uncork_shed_total{api="a",reason="deadline",status="200"} 9.0
"""

    assert read_statuses(metrics) == {"200": 7, "400": 1}
