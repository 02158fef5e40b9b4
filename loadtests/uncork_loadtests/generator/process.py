"""A generator process: one share of a plan, told when to start and stop by the process that made it.

    python -m uncork_loadtests.generator.process FOLDER INDEX

FOLDER holds `plan.msgpack`; the samples go to `samples-INDEX.npy` beside it. One line of JSON each, on
standard output: a Message. On standard input: `start SECONDS` (of time.monotonic(), which all processes
of a machine share), and `stop`, which ends the run early. The end of the input ends the process: whoever
wanted the result is gone.

A request costs a generator 55 to 100 microseconds of processor time, less the more there are, so one core
makes about 10 000 requests per second. Found on two shared cores (generator_cpu_s by requests):

    python -m uvicorn uncork_loadtests.services.bare:app --port 3112 --log-level warning --no-access-log
    uncork loadtest http://127.0.0.1:3112/ --rate 8000 --seconds 3 --shape 4 --json -
"""

import asyncio
import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from uncork_loadtests.generator.http_reply import ReplyError
from uncork_loadtests.generator.share import Part, Progress, Share
from uncork_loadtests.traffic.plan import Plan

PLAN = "plan.msgpack"
START, STOP = "start", "stop"


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a generator has to say: one of these."""

    ready: bool = False
    """It is connected and waits for the start."""
    progress: Progress | None = None
    part: Part | None = None
    """It is done, and its samples are written."""
    failed: str = ""
    """Why there is no result."""


def samples_file(folder: Path, index: int) -> Path:
    """Where generator number `index` leaves its samples."""
    return folder / f"samples-{index}.npy"


async def generate(folder: Path, index: int) -> None:
    """Run a share from beginning to end, and leave its samples."""
    plan = msgspec.msgpack.decode((folder / PLAN).read_bytes(), type=Plan)
    share = Share(plan, index=index)
    orders = _Orders(share)
    try:
        await share.connect()
        _calm_garbage_collector()
        _say(Message(ready=True))
        start_s = await orders.start
        part, samples = await share.run(start_s, tell=lambda progress: _say(Message(progress=progress)))
        np.save(samples_file(folder, index), samples, allow_pickle=False)
        _say(Message(part=part))
    finally:
        orders.close()
        await share.close()


class _Orders:
    """Reads standard input."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._loop = asyncio.get_running_loop()
        self._text = b""
        self.start: asyncio.Future[float] = self._loop.create_future()
        self._input = sys.stdin.fileno()
        self._loop.add_reader(self._input, self._read)

    def close(self) -> None:
        """Read no more."""
        self._loop.remove_reader(self._input)

    def _read(self) -> None:
        data = os.read(self._input, 4096)
        if not data:
            # Nobody is left to hand anything to, and the server should not be loaded for nothing.
            os._exit(1)
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            order, _, argument = line.decode().partition(" ")
            if order == START:
                self.start.set_result(float(argument))
            elif order == STOP:
                self._share.stop()


def _say(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def _calm_garbage_collector() -> None:
    """Look for cycles rarely: requests make none, and each look is a pause that counts as latency."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def main() -> None:
    """Run one generator."""
    try:
        uvloop.run(generate(Path(sys.argv[1]), int(sys.argv[2])))
    except (OSError, ReplyError, ValueError) as error:
        _say(Message(failed=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
