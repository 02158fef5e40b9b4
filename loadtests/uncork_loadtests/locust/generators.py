"""Generator processes under gevent, read without blocking the other greenlets of a locust process."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gevent
import msgspec
from gevent.queue import Queue
from gevent.subprocess import PIPE, Popen

from uncork_loadtests.generator.fleet import HEAD_START_S
from uncork_loadtests.generator.process import PLAN, START, Frame, command, read_frame
from uncork_loadtests.traffic.plan import Plan


@contextmanager
def generators(plan: Plan, shares: Sequence[int]) -> Iterator[Queue[Frame]]:
    """Start the generators of these shares together; yield a queue of their frames."""
    frames: Queue[Frame] = Queue()
    processes: list[Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="uncork-locust-") as folder:
        (Path(folder) / PLAN).write_bytes(msgspec.msgpack.encode(plan))
        try:
            for share in shares:
                # A session of its own, so that Ctrl-C reaches locust only.
                arguments = command(Path(folder), share, stream=True)
                processes.append(Popen(arguments, stdin=PIPE, stdout=PIPE, start_new_session=True))
            first = [read_frame(process.stdout.read) for process in processes]
            start = f"{START} {time.monotonic() + HEAD_START_S + plan.warmup_s!r}\n".encode()
            for process, frame in zip(processes, first, strict=True):
                if frame.failed:
                    frames.put(frame)
                    continue
                process.stdin.write(start)
                process.stdin.flush()
                gevent.spawn(_listen, process, frames)
            yield frames
        finally:
            for process in processes:
                process.kill()  # does nothing to one that has ended
                process.wait()


def _listen(process: Popen[bytes], frames: Queue[Frame]) -> None:
    while True:
        frame = read_frame(process.stdout.read)
        frames.put(frame)
        if frame.result is not None or frame.failed:
            return
