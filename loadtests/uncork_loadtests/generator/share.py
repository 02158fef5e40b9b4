"""One process's share of a run, from connecting to its samples, on the running event loop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from uncork_loadtests.generator.loops import ClosedLoop, OpenLoop
from uncork_loadtests.generator.samples import SHED, Samples, is_good, latencies_s
from uncork_loadtests.traffic.plan import Plan

# Longer than any sensible latency goal; requests without an answer by then are reported as unanswered.
_DRAIN_SECONDS = 15.0
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The last second or so of a run. Over several processes: sums, and the highest p50 and p99."""

    at_s: float
    """Seconds since the start of the measured time; negative in the warm-up."""
    seconds: float
    """Length of the interval."""
    done: int
    """Requests answered or lost."""
    good: int
    shed: int
    outstanding: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class ShareResult:
    """The result of one process, without its samples."""

    measured_s: float
    """Measured time; shorter than planned if the run was stopped or reached its limit."""
    cpu_s: float
    """Processor time of the generator in the measured time."""
    most_connections: int
    first_wrong: str
    """Request, expected answer and answer, shortened; empty if every answer was right."""
    first_errors: Mapping[int, str]
    """The first error text by status, shortened."""
    without_retry_after: int = 0
    """Answers with 503 without Retry-After, over the whole run."""


class Share:
    """Runs one share of a plan: connect, run, close."""

    def __init__(self, plan: Plan, *, index: int = 0) -> None:
        self._plan = plan
        loop = OpenLoop if plan.clients is None else ClosedLoop
        self._traffic: ClosedLoop | OpenLoop = loop(plan, share=index)

    async def connect(self) -> None:
        """Connect to the server; raise ConnectionError if that fails."""
        await self._traffic.reach()

    def stop(self) -> None:
        """End the run now; answers so far count."""
        self._traffic.halt()

    async def run(
        self, start_s: float, *, report: Callable[[Progress, Samples], None] | None = None
    ) -> tuple[ShareResult, Samples]:
        """Warm up, then measure from `start_s` of time.monotonic() on.

        `report` is called about once a second with the progress and the samples since the last call.

        Raises:
            ConnectionError: if a closed loop loses its server.
            ReplyError: if the server's answers are not HTTP/1.1.
        """
        traffic = self._traffic
        traffic.begin(start_s)
        reporting = asyncio.create_task(self._report_progress(report)) if report is not None else None
        try:
            await self._wait_until(start_s)
            cpu_s = time.process_time()
            await self._wait_until(start_s + self._plan.seconds)
            cpu_s, ended_s = time.process_time() - cpu_s, time.monotonic()
            await traffic.drain(_DRAIN_SECONDS)
        finally:
            if reporting is not None:
                reporting.cancel()
        result = ShareResult(
            measured_s=max(0.0, ended_s - start_s),
            cpu_s=cpu_s,
            most_connections=traffic.most_connections,
            first_wrong=traffic.answers.first_wrong,
            first_errors=traffic.answers.first_errors,
            without_retry_after=traffic.answers.without_retry_after,
        )
        return result, traffic.answers.recorder.samples()

    async def close(self) -> None:
        """Close all connections."""
        await self._traffic.close()

    async def _wait_until(self, when_s: float) -> None:
        await self._traffic.wait(when_s - time.monotonic())

    async def _report_progress(self, report: Callable[[Progress, Samples], None]) -> None:
        count, before_s = 0, time.monotonic()
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            now_s = time.monotonic()
            new = self._traffic.answers.recorder.samples(first=count)
            report(self._progress(new, now_s=now_s, seconds=now_s - before_s), new)
            count, before_s = count + len(new), now_s

    def _progress(self, new: Samples, *, now_s: float, seconds: float) -> Progress:
        good_ms = latencies_s(new[is_good(new)]) * 1000
        p50, p99 = np.quantile(good_ms, [0.5, 0.99]).tolist() if len(good_ms) else (None, None)
        return Progress(
            at_s=now_s - self._traffic.start_s,
            seconds=seconds,
            done=len(new),
            good=len(good_ms),
            shed=int((new["status"] == SHED).sum()),
            outstanding=self._traffic.outstanding,
            p50_ms=p50,
            p99_ms=p99,
        )


async def run_here(plan: Plan) -> tuple[ShareResult, Samples]:
    """Run a whole plan in this process.

    Raises:
        ConnectionError: if the server cannot be reached.
        ReplyError: if its answers are not HTTP/1.1.
    """
    share = Share(plan)
    try:
        await share.connect()
        return await share.run(time.monotonic() + plan.warmup_s)
    finally:
        await share.close()
