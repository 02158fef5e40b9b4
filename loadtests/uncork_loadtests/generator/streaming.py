"""A generator process that hands over its samples while it runs, for a program that shows them meanwhile.

    python -m uncork_loadtests.generator.streaming FOLDER SHARE

FOLDER holds `plan.msgpack`. On standard output come frames, each behind its length: ready, then samples
about once a second, then the end. On standard input: a line with the time.monotonic() at which what is
measured starts. Killing the process ends the run; nothing is lost but its last second.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from uncork_loadtests.generator.http_reply import ReplyError
from uncork_loadtests.generator.process import PLAN
from uncork_loadtests.generator.samples import SAMPLE, Samples
from uncork_loadtests.generator.share import Share
from uncork_loadtests.traffic.plan import Plan

_LENGTH_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a generator has to say."""

    ready: bool = False
    """It is connected and waits for the start."""
    samples: bytes = b""
    """New ones, as they lie in memory."""
    ended: bool = False
    failed: str = ""
    """Why there will be no more samples."""


def samples_of(frame: Frame) -> Samples:
    """The samples in a frame."""
    return np.frombuffer(frame.samples, dtype=SAMPLE)


def encode(frame: Frame) -> bytes:
    """A frame behind its length."""
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def read_frame(read: Callable[[int], bytes]) -> Frame:
    """Take the next frame from `read`, which gives as many bytes as are asked for, or fewer at the end.

    The end without a last frame is a failure, and given as one.
    """
    head = read(_LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    body = read(length) if len(head) == _LENGTH_BYTES else b""
    if not body or len(body) < length:
        return Frame(failed="a generator ended too early")
    return msgspec.msgpack.decode(body, type=Frame)


class _StreamingShare(Share):
    """A share whose samples can be had while it runs."""

    def __init__(self, plan: Plan, *, index: int) -> None:
        super().__init__(plan, index=index)
        self.given = 0

    def new_samples(self) -> Samples:
        """Those that were not given yet."""
        found = self._traffic.answers.recorder.samples(first=self.given)
        self.given += len(found)
        return found


async def stream(folder: Path, index: int) -> None:
    """Run a share from beginning to end."""
    share = _StreamingShare(msgspec.msgpack.decode((folder / PLAN).read_bytes(), type=Plan), index=index)
    try:
        await share.connect()
        _say(Frame(ready=True))
        line = await asyncio.to_thread(sys.stdin.buffer.readline)
        if not line:
            return  # nobody is left to hand anything to
        _, samples = await share.run(
            float(line), tell=lambda _: _say(Frame(samples=share.new_samples().tobytes()))
        )
        _say(Frame(samples=samples[share.given :].tobytes(), ended=True))
    finally:
        await share.close()


def _say(frame: Frame) -> None:
    try:
        sys.stdout.buffer.write(encode(frame))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Nobody is left to hand anything to, and the server should not be loaded for nothing.
        os._exit(1)


def main() -> None:
    """Run one generator."""
    try:
        uvloop.run(stream(Path(sys.argv[1]), int(sys.argv[2])))
    except (OSError, ReplyError, ValueError) as error:
        _say(Frame(failed=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
