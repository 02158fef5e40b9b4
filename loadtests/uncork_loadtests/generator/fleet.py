"""Runs a plan: starts the generator processes, lets them begin together, and merges what they saw.

outcome = run(Plan(url="http://127.0.0.1:3000/predict", payload=Payload(bodies=(b"[1, 2]",)), rate=500.0))
summarise(outcome.samples, seconds=outcome.measured_s)
"""

import contextlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import msgspec
import numpy as np

from uncork_loadtests.generator.process import PLAN, START, STOP, Message, samples_file
from uncork_loadtests.generator.samples import (
    SAMPLE,
    SHED,
    Samples,
    Summary,
    status_name,
    summarise,
    void_reason,
)
from uncork_loadtests.generator.share import Part, Progress
from uncork_loadtests.traffic.plan import Plan

_READY_SECONDS = 60.0
# Between the word to start and the start, for it to reach all generators.
_HEAD_START_S = 0.1
# After the last answer can have come: for a generator to write what it saw.
_END_SECONDS = 60.0
Tell = Callable[[Progress], None]


class LoadTestError(Exception):
    """The run came to nothing; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    samples: Samples
    """All requests, the warm-up included, in the order in which they were scheduled."""
    measured_s: float
    """How long was measured: less than planned if it was interrupted, 0 if that was in the warm-up."""
    cpu_s: tuple[float, ...]
    """Processor time that each generator used in the measured time."""
    connections: int
    """The most that were open at once, of all generators together."""
    first_wrong: str
    """What was sent, expected and answered first of all wrong answers; empty if all were right."""
    interrupted: bool
    first_errors: Mapping[int, str] = field(default_factory=dict)
    """By status that is not 2xx: what the first answer with it said, shortened; empty if it said nothing."""
    without_retry_after: int = 0
    """Answers with 503 that did not say when to come back, over the whole run."""

    @property
    def failure(self) -> str:
        """Why the run failed; empty if it did not.

        It fails without a good answer, or if most requests have another status than 2xx and 503: refusals
        with 503 may be what a load test of an overloaded service is about.
        """
        summary = self.summary()
        bad = {status: count for status, count in summary.statuses.items() if not 200 <= status < 300}
        failed = {status: count for status, count in bad.items() if status != SHED}
        if summary.good and 2 * sum(failed.values()) <= summary.requests:
            return ""
        if not bad:
            return "there was no good answer"
        worst = max(failed or bad, key=bad.__getitem__)
        what = "most requests failed" if summary.good else "there was no good answer"
        said = f", the first: {self.first_errors[worst]}" if self.first_errors.get(worst) else ""
        return f"{what}; {bad[worst]} of {summary.requests} requests: {status_name(worst)}{said}"

    @property
    def void(self) -> str:
        """Why the run says nothing about the server; empty if it does."""
        return void_reason(self.samples, seconds=self.measured_s)

    def summary(self) -> Summary:
        """Sum up; ValueError if nothing was measured."""
        return summarise(self.samples, seconds=self.measured_s, goal_s=self.plan.goal_s)


def run(plan: Plan, *, tell: Tell | None = None) -> Outcome:
    """Put a plan into practice; `tell` is called about once a second with what happened since.

    Ctrl-C (KeyboardInterrupt) ends the run early and gives what was seen so far.

    Raises:
        LoadTestError: if the server cannot be reached, or a generator failed.
        KeyboardInterrupt: if there is nothing yet to give.
    """
    with tempfile.TemporaryDirectory(prefix="uncork-loadtest-") as name:
        folder = Path(name)
        (folder / PLAN).write_bytes(msgspec.msgpack.encode(plan))
        with _generators(folder, plan.processes) as fleet:
            fleet.wait_until_ready()
            fleet.start(time.monotonic() + _HEAD_START_S + plan.warmup_s)
            with _on_interrupt(fleet.stop):
                parts = fleet.parts(plan, tell=tell)
            samples = [
                np.load(samples_file(folder, index), allow_pickle=False) for index in range(plan.processes)
            ]
    return _outcome(plan, parts, samples, interrupted=fleet.stopped)


def _outcome(plan: Plan, parts: Sequence[Part], samples: Sequence[Samples], *, interrupted: bool) -> Outcome:
    together = np.concatenate(samples) if samples else np.empty(0, dtype=SAMPLE)
    return Outcome(
        plan=plan,
        samples=together[np.argsort(together["scheduled_s"], kind="stable")],
        measured_s=min(part.measured_s for part in parts),
        cpu_s=tuple(part.cpu_s for part in parts),
        connections=sum(part.most_connections for part in parts),
        first_wrong=next((part.first_wrong for part in parts if part.first_wrong), ""),
        interrupted=interrupted,
        first_errors={status: text for part in reversed(parts) for status, text in part.first_errors.items()},
        without_retry_after=sum(part.without_retry_after for part in parts),
    )


@contextlib.contextmanager
def _generators(folder: Path, count: int) -> Iterator["_Fleet"]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(count):
            command = [sys.executable, "-m", "uncork_loadtests.generator.process", str(folder), str(index)]
            # A session of its own, so that Ctrl-C reaches us alone and we ask for what there is.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            processes.append(process)
        yield _Fleet(processes)
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
        yield  # Python hands signals to the main thread only
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Fleet:
    """The generators of a run."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.stopped = False
        self._processes = processes
        self._said: queue.Queue[tuple[int, Message]] = queue.Queue()
        for index in range(len(processes)):
            threading.Thread(target=self._listen, args=(index,), daemon=True).start()

    def _listen(self, index: int) -> None:
        process = self._processes[index]
        assert process.stdout is not None
        last = Message()
        for line in process.stdout:
            last = msgspec.json.decode(line, type=Message)
            self._said.put((index, last))
        # One that has handed over may end while others have not.
        if last.part is None:
            self._said.put((index, Message(failed=f"generator {index} ended too early")))

    def wait_until_ready(self) -> None:
        """Return when all are connected."""
        limit_s = time.monotonic() + _READY_SECONDS
        for _ in self._processes:
            self._next(limit_s)

    def start(self, start_s: float) -> None:
        """Let all measure from `start_s` of time.monotonic() on."""
        self._order(f"{START} {start_s!r}")

    def stop(self) -> None:
        """Let all end now."""
        self.stopped = True
        self._order(STOP)

    def parts(self, plan: Plan, *, tell: Tell | None) -> list[Part]:
        """Wait for what all have to hand over."""
        limit_s = time.monotonic() + plan.warmup_s + plan.seconds + _END_SECONDS
        parts: dict[int, Part] = {}
        progress: dict[int, Progress] = {}
        while len(parts) < len(self._processes):
            index, message = self._next(limit_s)
            if message.part is not None:
                parts[index] = message.part
            elif message.progress is not None:
                progress[index] = message.progress
            if tell is not None and len(progress) == len(self._processes):
                tell(_together(list(progress.values())))
                progress.clear()
        return [parts[index] for index in sorted(parts)]

    def _next(self, limit_s: float) -> tuple[int, Message]:
        try:
            index, message = self._said.get(timeout=max(0.0, limit_s - time.monotonic()))
        except queue.Empty:
            raise LoadTestError("a generator did not answer in time") from None
        if message.failed:
            raise LoadTestError(message.failed)
        return index, message

    def _order(self, order: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # what became of it is told on the other pipe
                process.stdin.write(f"{order}\n".encode())
                process.stdin.flush()


def _together(parts: Sequence[Progress]) -> Progress:
    def highest(values: list[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return Progress(
        at_s=parts[0].at_s,
        seconds=parts[0].seconds,
        done=sum(part.done for part in parts),
        good=sum(part.good for part in parts),
        shed=sum(part.shed for part in parts),
        outstanding=sum(part.outstanding for part in parts),
        p50_ms=highest([part.p50_ms for part in parts]),
        p99_ms=highest([part.p99_ms for part in parts]),
    )
