"""Send mutated requests to the examples: the gateway must not fail, hang or answer other requests wrongly.

Seed and number determine a request, so that a failed one can be sent again:

    python -m benchmarks.fuzz.run --seed 7 --first 4711 --requests 1

With --grpc, the requests are calls, and those of one connection must be sent together.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from benchmarks.chaos.streams import connected, read_reply
from benchmarks.fuzz.call_seeds import CALL_EXAMPLES
from benchmarks.fuzz.calls import LOT, CallFuzzer
from benchmarks.fuzz.fuzzer import HANDLER_FAILED, Found, Fuzzer, faults_of
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.seeds import EXAMPLES, Seed
from benchmarks.harness.cli import choose, exit_with, reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.paths import ROOT
from benchmarks.harness.rounds import Tell
from benchmarks.harness.sheets import Sheet, output, show
from uncork_loadtests.generator.http_reply import Reply, ReplyError
from uncork_loadtests.servers import reserved_port, serve

# Then the client half-closes: some requests announce more than they send.
_PATIENCE_S = 0.3
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
                found = _fuzz(name, numbers, over_grpc=grpc, seed=seed, tell=status.update)
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


def _fuzz(name: str, numbers: Sequence[int], *, over_grpc: bool, seed: int, tell: Tell) -> Found:
    """Serve an example and send it the requests, or calls, with these numbers."""
    fuzzer: CallFuzzer | RequestFuzzer
    with ExitStack() as stack:
        options, target = dict(_OPTIONS), (CALL_EXAMPLES if over_grpc else EXAMPLES)[name]().target
        if over_grpc:
            options["--grpc-port"] = port = stack.enter_context(reserved_port())
        server = stack.enter_context(serve(target, command=uncork_serve(ROOT / target, options)))
        if over_grpc:
            fuzzer = CallFuzzer(name, port, CALL_EXAMPLES[name](), seed=seed, tell=tell)
        else:
            fuzzer = RequestFuzzer(name, server.port, EXAMPLES[name](), seed=seed, tell=tell)
        uvloop.run(fuzzer.run(numbers))
        fuzzer.found.faults += faults_of(server)
    return fuzzer.found


class RequestFuzzer(Fuzzer[Seed]):
    """Sends mutated requests over HTTP, each on a connection of its own."""

    what, lot, connections, bound_s = "request", 1, 24, 5.0

    async def _send(self, numbers: Sequence[int]) -> None:
        (number,) = numbers
        random = Random(f"{self._seed} {number}")
        request = mutated(self._example.draw(random), random)
        fault = ""
        try:
            reply = await self._answer(request, patience_s=_PATIENCE_S)
        except TimeoutError:
            fault = f"neither answered nor closed within {self.bound_s:g} s"
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

    async def _ask(self) -> tuple[object, str]:
        try:
            reply = await self._answer(whole(self._example.seeds[0]))
        except (TimeoutError, ReplyError) as error:
            return None, repr(error)
        return reply.body if reply is not None and reply.status == 200 else None, str(reply)

    async def _answer(self, request: bytes, *, patience_s: float | None = None) -> Reply | None:
        """Return the first answer to some bytes; None if the connection was closed instead.

        The client half-closes after ``patience_s``.

        Raises:
            TimeoutError: if there is neither.
        """
        has_body = not request.lstrip().startswith(b"HEAD ")
        async with (
            asyncio.timeout((patience_s or 0.0) + self.bound_s),
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
