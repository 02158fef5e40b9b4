"""One process's share of a run, from connecting to its samples, on the running event loop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from uncork_loadtests.generator.connections import Traffic
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
    good: int
    shed: int
    outstanding: int
    p50_ms: float | None
    p99_ms: float | None


Report = Callable[[Progress, Samples], None]


@dataclass(frozen=True, kw_only=True)
class ShareResult:
    """The result of one process, without its samples."""

    measured_s: float
    """Measured time; shorter than planned if the run was stopped or reached its limit."""
    cpu_s: float
    """Processor time of the generator in the measured time."""
    most_connections: int
    first_wrong: str
    first_errors: Mapping[int, str]


def traffic_of(plan: Plan, *, share: int = 0) -> Traffic:
    """Return one share of a plan's traffic, to be run between `reach()` and `close()`."""
    return OpenLoop(plan, share=share) if plan.clients is None else ClosedLoop(plan, share=share)


async def run_share(
    traffic: Traffic, start_s: float, *, report: Report | None = None
) -> tuple[ShareResult, Samples]:
    """Warm up, then measure from `start_s` of time.monotonic() on.

    `report` is called about once a second with the progress and the samples since the last call.

    Raises:
        ConnectionError: if a closed loop loses its server.
        ValueError: if a body cannot be made.
        ReplyError: if the server's responses are not HTTP/1.1.
    """
    traffic.begin(start_s)
    reporting = asyncio.create_task(_report_progress(traffic, report)) if report is not None else None
    try:
        await traffic.wait(start_s - time.monotonic())
        cpu_s = time.process_time()
        await traffic.wait(start_s + traffic.plan.seconds - time.monotonic())
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
    )
    return result, traffic.answers.samples()


async def _report_progress(traffic: Traffic, report: Report) -> None:
    count, before_s = 0, time.monotonic()
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        now_s = time.monotonic()
        new = traffic.answers.samples(first=count)
        good_ms = latencies_s(new[is_good(new)]) * 1000
        p50, p99 = np.quantile(good_ms, [0.5, 0.99]).tolist() if len(good_ms) else (None, None)
        progress = Progress(
            at_s=now_s - traffic.start_s,
            seconds=now_s - before_s,
            good=len(good_ms),
            shed=int((new["status"] == SHED).sum()),
            outstanding=traffic.outstanding,
            p50_ms=p50,
            p99_ms=p99,
        )
        report(progress, new)
        count, before_s = count + len(new), now_s


async def run_here(plan: Plan) -> tuple[ShareResult, Samples]:
    """Run a whole plan in this process; raise as :func:`run_share`."""
    traffic = traffic_of(plan)
    try:
        await traffic.reach()
        return await run_share(traffic, time.monotonic() + plan.warmup_s)
    finally:
        await traffic.close()
