"""What the fuzzers of running servers share."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Generic

from benchmarks.chaos.gateway import bug_lines
from benchmarks.fuzz.seeds import Example, S
from benchmarks.harness.rounds import Tell
from uncork_loadtests.servers import BenchError, Server

HANDLER_FAILED = "the handler of API"
"""Begins the error of a request whose handler raised, as handlers may."""


@dataclass(kw_only=True)
class Found:
    """The result for one example; over HTTP, a connection closed without an answer counts as status 0."""

    statuses: Counter[int | str] = field(default_factory=Counter)
    neighbours: int = 0
    faults: list[str] = field(default_factory=list)


class Fuzzer(ABC, Generic[S]):
    """Sends mutated requests to a server over several connections; :attr:`found` is the result."""

    what: ClassVar[str]
    """What a request is called."""
    lot: ClassVar[int]
    """Requests that belong together."""
    connections: ClassVar[int]
    bound_s: float
    """Time limit for the answers of a lot, or the end of its connection."""

    def __init__(self, name: str, port: int, example: Example[S], *, seed: int, tell: Tell) -> None:
        self._name = name
        self._port = port
        self._example: Example[S] = example
        self._seed = seed
        self._tell = tell
        self._expected: object = None
        self.found = Found()

    async def run(self, numbers: Sequence[int]) -> None:
        """Send the requests with these numbers.

        Raises:
            BenchError: if the example does not answer a valid request first.
        """
        self._expected, said = await self._ask()
        if self._expected is None:
            raise BenchError(f"{self._name} does not answer a valid {self.what}: {said}")
        left = iter([list(lot) for _, lot in groupby(numbers, key=lambda number: number // self.lot)])

        async def send() -> None:
            for lot in left:
                await self._send(lot)
                sent = sum(self.found.statuses.values())
                self._tell(f"{self._name}: {sent:,} of {len(numbers):,}, {len(self.found.faults)} faults")

        async with asyncio.TaskGroup() as sending:
            for _ in range(self.connections):
                sending.create_task(send())

    @abstractmethod
    async def _ask(self) -> tuple[object, str]:
        """Return the content of the answer to a valid request, None if it is not right, and the answer."""

    @abstractmethod
    async def _send(self, numbers: Sequence[int]) -> None:
        """Send a lot of mutated requests."""

    async def _check_neighbour(self, number: int) -> None:
        """Check that a valid request still gets its answer."""
        self.found.neighbours += 1
        content, said = await self._ask()
        if content != self._expected:
            self.found.faults.append(f"the valid {self.what} after number {number} got {said}")


def faults_of(server: Server) -> list[str]:
    """Return whether a server has ended, and the lines of its log that indicate a bug."""
    ended = server.exit_code()
    faults = [f"the log says: {line}" for line in bug_lines(server)]
    return faults if ended is None else [f"the gateway ended with {ended}", *faults]
