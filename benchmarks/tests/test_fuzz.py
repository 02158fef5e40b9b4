"""Mutated requests follow from the seed, and failures of a server are found."""

import asyncio
from collections.abc import Iterable
from itertools import chain, repeat
from random import Random
from typing import cast

import pytest

from benchmarks.fuzz.fuzzer import Found
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.run import RequestFuzzer, whole
from benchmarks.fuzz.seeds import EXAMPLES, Example, Seed
from tests.loadtests.fake_server import reply
from uncork_loadtests.servers import BenchError

ECHO = Example("echo", (Seed(b"POST", b"/", (), b"good"),))
FINE = reply(b"fine")


@pytest.mark.parametrize("name", EXAMPLES)
def test_mutations_differ_from_each_other(name: str) -> None:
    random, example = Random(1), EXAMPLES[name]()

    made = [mutated(example.draw(random), random) for _ in range(500)]

    assert len(set(made)) > 350
    assert any(b"chunked" in request for request in made)
    assert any(b"HTTP/1.1" not in request for request in made)
    assert {request.split(b" ")[0] for request in made} >= {b"POST", b"GET", b"HEAD"}


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
            fuzzer = RequestFuzzer("fake", port, ECHO, seed=1, tell=lambda doing: None)
            fuzzer.bound_s = 0.5
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
