"""A generator process: one share of a plan.

    python -m uncork_loadtests.generator.process FOLDER INDEX [stream]

FOLDER holds `plan.msgpack`. Standard output carries frames: ready, then progress about once a second, then
the samples and the result; with `stream`, samples come with each progress. Standard input takes `start
SECONDS` (of time.monotonic(), which all processes of a machine share) and `stop`, which ends the run early.
The end of the input ends the process.

A request costs a generator 55 to 100 microseconds of CPU time, less at higher rates, so one core makes
about 10 000 requests per second.
"""

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from uncork_loadtests.generator.samples import SAMPLE, Samples
from uncork_loadtests.generator.share import Progress, ShareResult, run_share, traffic_of
from uncork_loadtests.traffic.plan import Plan

PLAN = "plan.msgpack"
START, STOP, STREAM = "start", "stop", "stream"


_LENGTH_BYTES = 4


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a generator."""

    ready: bool = False
    """The generator is connected and waits for the start."""
    progress: Progress | None = None
    samples: bytes = b""
    """New samples, as they lie in memory."""
    result: ShareResult | None = None
    """In the last frame of a generator that succeeded."""
    failed: str = ""
    """Why there is no result."""


def samples_of(frame: Frame) -> Samples:
    return np.frombuffer(frame.samples, dtype=SAMPLE)


def encode(frame: Frame) -> bytes:
    """Write a frame behind its length."""
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def read_frame(read: Callable[[int], bytes]) -> Frame:
    """Read a frame with `read`, which returns fewer bytes than asked for only at the end of the input.

    An input that ends without a last frame gives a frame that says so.
    """
    head = read(_LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    body = read(length) if len(head) == _LENGTH_BYTES else b""
    if not body or len(body) < length:
        return Frame(failed="a load generator exited early")
    return msgspec.msgpack.decode(body, type=Frame)


def command(folder: Path, index: int, *, stream: bool = False) -> list[str]:
    arguments = [sys.executable, "-m", "uncork_loadtests.generator.process", str(folder), str(index)]
    return [*arguments, STREAM] if stream else arguments


async def _generate(folder: Path, index: int, *, stream: bool) -> None:
    plan = msgspec.msgpack.decode((folder / PLAN).read_bytes(), type=Plan)
    traffic = traffic_of(plan, share=index)
    sent = 0

    def report(progress: Progress, samples: Samples) -> None:
        nonlocal sent
        if stream:
            sent += len(samples)
        _write(Frame(progress=progress, samples=samples.tobytes() if stream else b""))

    try:
        with _orders(stop=traffic.halt) as start:
            await traffic.reach()
            _calm_garbage_collector()
            _write(Frame(ready=True))
            result, samples = await run_share(traffic, await start, report=report)
            _write(Frame(samples=samples[sent:].tobytes(), result=result))
    finally:
        await traffic.close()


@contextmanager
def _orders(*, stop: Callable[[], None]) -> Iterator[asyncio.Future[float]]:
    """Follow the orders on standard input until the block ends; give the time of the start."""
    loop, orders = asyncio.get_running_loop(), sys.stdin.fileno()
    start: asyncio.Future[float] = loop.create_future()
    text = b""

    def read() -> None:
        nonlocal text
        data = os.read(orders, 4096)
        if not data:
            # The parent process is gone: stop loading the server.
            os._exit(1)
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            order, _, argument = line.decode().partition(" ")
            if order == START:
                start.set_result(float(argument))
            elif order == STOP:
                stop()

    loop.add_reader(orders, read)
    try:
        yield start
    finally:
        loop.remove_reader(orders)


def _write(frame: Frame) -> None:
    try:
        sys.stdout.buffer.write(encode(frame))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)  # the parent process is gone


def _calm_garbage_collector() -> None:
    """Collect rarely: requests make no cycles, and each collection is a pause that counts as latency."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def main() -> None:
    try:
        uvloop.run(_generate(Path(sys.argv[1]), int(sys.argv[2]), stream=STREAM in sys.argv[3:]))
    except (OSError, ValueError) as error:
        _write(Frame(failed=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
