"""Runs a plan: starts the generator processes together and merges their results.

outcome = run(Plan(url="http://127.0.0.1:3000/predict", payload=Payload(bodies=(b"[1, 2]",)), rate=500.0))
outcome.summary()
"""

import contextlib
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import msgspec
import numpy as np

from uncork_loadtests.generator.process import PLAN, START, STOP, Frame, command, read_frame, samples_of
from uncork_loadtests.generator.samples import (
    PENDING,
    SHED,
    Samples,
    Summary,
    status_name,
    summarise,
    void_reason,
)
from uncork_loadtests.generator.share import Progress
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.plan import Plan

_READY_SECONDS = 60.0
_HEAD_START_S = 0.1
"""Time between the start order and the start, for the order to reach all generators."""
# For a generator to hand over its samples after the last answer.
_END_SECONDS = 60.0
Tell = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run."""

    plan: Plan
    samples: Samples
    """All requests, warm-up included, by scheduled time."""
    measured_s: float
    """Measured time: shorter than planned if interrupted, 0 if that was in the warm-up."""
    cpu_s: tuple[float, ...]
    """Processor time of each generator in the measured time."""
    connections: int
    """Most connections open at once, summed over generators."""
    first_wrong: str
    """The first wrong answer, with its request and the expected answer; empty if all were right."""
    interrupted: bool
    first_errors: Mapping[int, str] = field(default_factory=dict)

    @property
    def failure(self) -> str:
        """The reason why the run failed, or "".

        A run fails without any good response, or if most requests have a status other than 2xx and 503:
        refusals with 503 may be what the load test is about. Requests pending at Ctrl-C have not failed.
        """
        summary = self.summary()
        bad = {status: count for status, count in summary.statuses.items() if not 200 <= status < 300}
        failed = {status: count for status, count in bad.items() if status not in (SHED, PENDING)}
        if summary.good and 2 * sum(failed.values()) <= summary.requests:
            return ""
        if not bad:
            return "no response was successful"
        worst = max(failed or bad, key=bad.__getitem__)
        what = "most requests failed" if summary.good else "no response was successful"
        said = f"; first: {self.first_errors[worst]}" if self.first_errors.get(worst) else ""
        return f"{what}: {bad[worst]} of {summary.requests} requests ended with {status_name(worst)}{said}"

    @property
    def void(self) -> str:
        """The reason why the run says nothing about the server, or ""."""
        return void_reason(self.samples, seconds=self.measured_s)

    def summary(self) -> Summary:
        """Summarise; raise ValueError if nothing was measured."""
        return summarise(self.samples, seconds=self.measured_s, goal_s=self.plan.goal_s)


def run(plan: Plan, *, tell: Tell | None = None) -> Outcome:
    """Run a plan; `tell` is called about once a second with the progress.

    Ctrl-C (KeyboardInterrupt) ends the run early and returns the samples so far.

    Raises:
        BenchError: if the server cannot be reached or a generator failed.
        KeyboardInterrupt: before the first measured request.
    """
    with generators(plan, range(plan.processes)) as fleet, _on_interrupt(fleet.stop):
        last = fleet.last_frames(tell=tell)
    return _outcome(plan, last, interrupted=fleet.stopped)


def _outcome(plan: Plan, last: Sequence[Frame], *, interrupted: bool) -> Outcome:
    samples = np.concatenate([samples_of(frame) for frame in last])
    results = [frame.result for frame in last if frame.result is not None]
    return Outcome(
        plan=plan,
        samples=samples[np.argsort(samples["scheduled_s"], kind="stable")],
        measured_s=min(result.measured_s for result in results),
        cpu_s=tuple(result.cpu_s for result in results),
        connections=sum(result.most_connections for result in results),
        first_wrong=next((result.first_wrong for result in results if result.first_wrong), ""),
        interrupted=interrupted,
        first_errors={
            status: text for result in reversed(results) for status, text in result.first_errors.items()
        },
    )


@contextlib.contextmanager
def generators(plan: Plan, shares: Sequence[int], *, stream: bool = False) -> Iterator["Fleet"]:
    """Start the generators of these shares of a plan together, and end them with the block.

    With ``stream``, they hand over samples during the run.

    Raises:
        BenchError: if the server cannot be reached or a generator failed.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="uncork-loadtest-") as folder:
        (Path(folder) / PLAN).write_bytes(msgspec.msgpack.encode(plan))
        try:
            for share in shares:
                # A session of its own, so that Ctrl-C reaches only this process, which then asks for the
                # samples.
                process = subprocess.Popen(
                    command(Path(folder), share, stream=stream),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
                processes.append(process)
            fleet = Fleet(plan, processes)
            fleet.wait_until_ready()
            fleet.start(time.monotonic() + _HEAD_START_S + plan.warmup_s)
            yield fleet
        finally:
            for process in processes:
                process.kill()  # does nothing to one that has ended
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    assert pipe is not None
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@contextlib.contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first Ctrl-C; the second interrupts as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Fleet:
    """The generators of a run."""

    def __init__(self, plan: Plan, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.stopped = False
        self._plan = plan
        self._processes = processes
        self._frames: queue.Queue[tuple[int, Frame]] = queue.Queue()
        for index in range(len(processes)):
            threading.Thread(target=self._listen, args=(index,), daemon=True).start()

    def _listen(self, index: int) -> None:
        output = self._processes[index].stdout
        assert output is not None
        while True:
            frame = read_frame(output.read)
            self._frames.put((index, frame))
            if frame.failed or frame.result is not None:
                return

    def wait_until_ready(self) -> None:
        limit_s = time.monotonic() + _READY_SECONDS
        for _ in self._processes:
            self._next(limit_s)

    def start(self, start_s: float) -> None:
        """Start the measured time at `start_s` of time.monotonic()."""
        self._order(f"{START} {start_s!r}")

    def stop(self) -> None:
        self.stopped = True
        self._order(STOP)

    def frames(self) -> Iterator[tuple[int, Frame]]:
        """Yield the frames and the indexes of their generators, until all have ended."""
        limit_s = time.monotonic() + self._plan.warmup_s + self._plan.seconds + _END_SECONDS
        running = len(self._processes)
        while running:
            index, frame = self._next(limit_s)
            running -= frame.result is not None
            yield index, frame

    def last_frames(self, *, tell: Tell | None) -> list[Frame]:
        last: dict[int, Frame] = {}
        progress: dict[int, Progress] = {}
        for index, frame in self.frames():
            if frame.result is not None:
                last[index] = frame
            elif frame.progress is not None:
                progress[index] = frame.progress
            if tell is not None and len(progress) == len(self._processes):
                tell(_sum_up(list(progress.values())))
                progress.clear()
        return [last[index] for index in sorted(last)]

    def _next(self, limit_s: float) -> tuple[int, Frame]:
        try:
            index, frame = self._frames.get(timeout=max(0.0, limit_s - time.monotonic()))
        except queue.Empty:
            raise BenchError("a load generator did not respond in time") from None
        if frame.failed:
            raise BenchError(frame.failed)
        return index, frame

    def _order(self, order: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # _listen sees the end of the process
                process.stdin.write(f"{order}\n".encode())
                process.stdin.flush()


def _sum_up(all_progress: Sequence[Progress]) -> Progress:
    def highest(values: list[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return Progress(
        at_s=all_progress[0].at_s,
        seconds=all_progress[0].seconds,
        good=sum(one.good for one in all_progress),
        shed=sum(one.shed for one in all_progress),
        outstanding=sum(one.outstanding for one in all_progress),
        p50_ms=highest([one.p50_ms for one in all_progress]),
        p99_ms=highest([one.p99_ms for one in all_progress]),
    )
