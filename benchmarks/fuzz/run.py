"""Send mutated requests to the examples: the gateway must not fail, hang or answer other requests wrongly.

Seed and number determine a request, so that a failed one can be sent again:

    python -m benchmarks.fuzz.run --seed 7 --first 4711 --requests 1

With --grpc, the requests are calls, and those of one connection must be sent together.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from benchmarks.chaos.gateway import BUG
from benchmarks.chaos.streams import connected, read_reply
from benchmarks.fuzz.call_seeds import CALL_EXAMPLES
from benchmarks.fuzz.calls import HANDLER_FAILED, LOT, CallFuzzer, Found
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.seeds import EXAMPLES, Example, Seed
from benchmarks.harness.cli import choose, exit_with, reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.paths import ROOT
from benchmarks.harness.rounds import Tell
from benchmarks.harness.sheets import Sheet, output, show
from uncork_loadtests.generator.http_reply import Reply, ReplyError
from uncork_loadtests.servers import BenchError, Server, reserved_port, serve

_CONNECTIONS = 24
# Then the client half-closes: some requests announce more than they send.
_PATIENCE_S = 0.3
_BOUND_S = 5.0
_NEIGHBOUR_EVERY = 20
_MAX_SHOWN = 20
_CLOSED = 0
_OPTIONS: Mapping[str, object] = {"--mb-max-latency": 5000}


def main(
    requests: Annotated[
        int, typer.Option(min=1, help="Mutated requests, distributed over the examples.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the mutations.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="Number of the first request.")] = 0,
    examples: Annotated[
        str | None, typer.Option(help="Examples to send to, separated by commas; by default all.")
    ] = None,
    grpc: Annotated[bool, typer.Option("--grpc", help="Send calls over gRPC, not HTTP requests.")] = False,
) -> None:
    """Send mutated requests; exit with 1 if the gateway fails, hangs, or answers a valid request wrongly."""
    every = list(CALL_EXAMPLES if grpc else EXAMPLES)
    names = choose(",".join(every) if examples is None else examples, every, what="example")
    progress = Console(stderr=True)
    faults: list[str] = []
    rows = []
    with reporting_failures("fuzz", progress=progress):
        for name, numbers in _shares(range(first, first + requests), names, lot=LOT if grpc else 1).items():
            with progress.status(name) as status:
                fuzz = _fuzz_calls if grpc else _fuzz
                found = fuzz(name, numbers, seed=seed, tell=status.update)
            faults += [f"{name}: {fault}" for fault in found.faults]
            rows.append(_row(name, found))
    what, statuses = ("calls", "") if grpc else ("requests", " (0: closed)")
    columns = ["example", f"mutated {what}", f"answers by status{statuses}", f"valid {what}", "faults"]
    show(Sheet(title=f"Fuzz, seed {seed}", columns=columns, rows=rows), console=output())
    more = [f"and {len(faults) - _MAX_SHOWN} more"] if len(faults) > _MAX_SHOWN else []
    exit_with([*faults[:_MAX_SHOWN], *more], progress=progress)


def _shares(numbers: range, names: Sequence[str], *, lot: int) -> Mapping[str, Sequence[int]]:
    """Distribute lots of numbers over examples; those without any are missing."""
    shares: dict[str, list[int]] = {}
    for number in numbers:
        shares.setdefault(names[number // lot % len(names)], []).append(number)
    return shares


def _fuzz(name: str, numbers: Sequence[int], *, seed: int, tell: Tell) -> Found:
    """Serve an example and send it the requests with these numbers."""
    example = EXAMPLES[name]()
    with serve(example.target, command=uncork_serve(ROOT / example.target, _OPTIONS)) as server:
        fuzzer = Fuzzer(server, example, seed=seed, tell=tell)
        uvloop.run(fuzzer.run(numbers))
        fuzzer.found.faults += _faults_of(server)
    return fuzzer.found


def _fuzz_calls(name: str, numbers: Sequence[int], *, seed: int, tell: Tell) -> Found:
    """Serve an example and send it the calls with these numbers."""
    example = CALL_EXAMPLES[name]()
    with reserved_port() as port:
        command = uncork_serve(ROOT / example.target, {**_OPTIONS, "--grpc-port": port})
        with serve(example.target, command=command) as server:
            fuzzer = CallFuzzer(server.name, port, example, seed=seed, tell=tell)
            uvloop.run(fuzzer.run(numbers))
            fuzzer.found.faults += _faults_of(server)
    return fuzzer.found


def _faults_of(server: Server) -> list[str]:
    """Return whether a server has ended, and the lines of its log that indicate a bug."""
    ended = server.exit_code()
    faults = [f"the log says: {line}" for line in server.written().splitlines() if BUG.search(line)]
    return faults if ended is None else [f"the gateway ended with {ended}", *faults]


class Fuzzer:
    """Sends mutated requests to a server over several connections; :attr:`found` is the result.

    Args:
        bound_s: time limit for an answer or the end of the connection.
    """

    def __init__(
        self,
        server: Server,
        example: Example,
        *,
        seed: int,
        tell: Tell,
        bound_s: float = _BOUND_S,
    ) -> None:
        self._bound_s = bound_s
        self._port = server.port
        self._name = server.name
        self._example = example
        self._seed = seed
        self._tell = tell
        self._expected = b""
        self.found = Found()

    async def run(self, numbers: Sequence[int]) -> None:
        """Send the requests with these numbers.

        Raises:
            BenchError: if the example does not answer a valid request first.
        """
        good = await self._answer(whole(self._example.seeds[0]))
        if good is None or good.status != 200:
            raise BenchError(f"{self._name} does not answer a valid request: {good}")
        self._expected = good.body
        left = iter(numbers)
        total = len(numbers)

        async def send() -> None:
            for number in left:
                await self._send(number)
                if sum(self.found.statuses.values()) % 500 == 0:
                    sent = sum(self.found.statuses.values())
                    self._tell(f"{self._name}: {sent:,} of {total:,}, {len(self.found.faults)} faults")

        async with asyncio.TaskGroup() as connections:
            for _ in range(_CONNECTIONS):
                connections.create_task(send())

    async def _send(self, number: int) -> None:
        random = Random(f"{self._seed} {number}")
        request = mutated(self._example.draw(random), random)
        fault = ""
        try:
            reply = await self._answer(request, patience_s=_PATIENCE_S)
        except TimeoutError:
            fault = f"neither answered nor closed within {self._bound_s:g} s"
        except (ReplyError, asyncio.LimitOverrunError) as error:
            fault = f"the answer is not valid HTTP: {error}"
        else:
            status = _CLOSED if reply is None else reply.status
            self.found.statuses[status] += 1
            if reply is not None and status >= 500 and HANDLER_FAILED.encode() not in reply.body:
                fault = f"{status} {reply.body[:200]!r}"
        if fault:
            self.found.faults.append(
                f"request {number} (--first {number} --requests 1): {fault}: {request[:600]!r}"
            )
        if number // len(EXAMPLES) % _NEIGHBOUR_EVERY == 0:
            await self._check_neighbour(number)

    async def _check_neighbour(self, number: int) -> None:
        """Check that a valid request still gets its answer."""
        self.found.neighbours += 1
        try:
            reply = await self._answer(whole(self._example.seeds[0]))
        except (TimeoutError, ReplyError) as error:
            self.found.faults.append(f"the valid request after number {number}: {error!r}")
            return
        if reply is None or (reply.status, reply.body) != (200, self._expected):
            self.found.faults.append(f"the valid request after number {number} got {reply}")

    async def _answer(self, request: bytes, *, patience_s: float | None = None) -> Reply | None:
        """Return the first answer to some bytes; None if the connection was closed instead.

        The client half-closes after ``patience_s``.

        Raises:
            TimeoutError: if there is neither.
        """
        has_body = not request.lstrip().startswith(b"HEAD ")
        async with (
            asyncio.timeout((patience_s or 0.0) + self._bound_s),
            connected(self._port) as (reader, writer),
        ):
            writer.write(request)
            reading = asyncio.ensure_future(read_reply(reader, has_body=has_body))
            try:
                if patience_s is not None:
                    done, _ = await asyncio.wait({reading}, timeout=patience_s)
                    if not done:
                        writer.write_eof()
                return await reading
            finally:
                reading.cancel()


def whole(seed: Seed) -> bytes:
    """Return the bytes of a valid request."""
    headers = ((b"Host", b"fuzz"), *seed.headers, (b"Content-Length", b"%d" % len(seed.body)))
    lines = [b"%b %b HTTP/1.1" % (seed.method, seed.target), *(b"%b: %b" % header for header in headers)]
    return b"\r\n".join([*lines, b"", seed.body])


def _row(name: str, found: Found) -> list[str]:
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(found.statuses.items(), key=str))
    sent = sum(found.statuses.values())
    return [name, f"{sent:,}", statuses, f"{found.neighbours:,}", f"{len(found.faults):,}"]


if __name__ == "__main__":
    typer.run(main)
