"""One process's share of a run, from connecting to its samples, on the running event loop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from uncork_loadtests.generator.loops import ClosedLoop, OpenLoop, make_traffic
from uncork_loadtests.generator.samples import SHED, Samples, is_good, latencies_s
from uncork_loadtests.traffic.plan import Plan

# Longer than any sensible latency goal: what has no answer by then is reported as unanswered.
_DRAIN_SECONDS = 15.0
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What happened in a run in about a second. Over several processes: sums, and the highest p50 and p99."""

    at_s: float
    """Seconds from the start of what is measured; negative in the warm-up."""
    seconds: float
    """That this is about."""
    done: int
    """Requests answered or lost."""
    good: int
    shed: int
    outstanding: int
    """Requests that wait for their answer."""
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one process hands over, beside its samples."""

    measured_s: float
    """How long was measured; less than was planned if the run was stopped, or had a limit."""
    cpu_s: float
    """Processor time used meanwhile."""
    most_connections: int
    first_wrong: str
    """What was sent, expected and answered, shortened; empty if all was right."""
    first_errors: Mapping[int, str]
    """By status that is not 2xx: what the first answer with it said, shortened."""
    without_retry_after: int = 0
    """Answers with 503 that do not say when to come back, over the whole run."""


class Share:
    """Runs a share of a plan: connect, then run, then close."""

    def __init__(self, plan: Plan, *, index: int = 0) -> None:
        self._plan = plan
        self._traffic: ClosedLoop | OpenLoop = make_traffic(plan, share=index)

    async def connect(self) -> None:
        """Reach the server; ConnectionError if it cannot be reached."""
        await self._traffic.reach()

    def stop(self) -> None:
        """End the run now: what was answered so far counts."""
        self._traffic.halt()

    async def run(
        self, start_s: float, *, tell: Callable[[Progress], None] | None = None
    ) -> tuple[Part, Samples]:
        """Measure from `start_s` of time.monotonic() on, after the warm-up.

        Raises:
            ConnectionError: if the server is gone and nobody is left to ask (closed loop).
            ReplyError: if it answers with something other than HTTP/1.1.
        """
        traffic = self._traffic
        traffic.begin(start_s)
        telling = asyncio.create_task(self._keep_telling(tell)) if tell is not None else None
        try:
            await self._until(start_s)
            cpu_s = time.process_time()
            await self._until(start_s + self._plan.seconds)
            cpu_s, ended_s = time.process_time() - cpu_s, time.monotonic()
            await traffic.drain(_DRAIN_SECONDS)
        finally:
            if telling is not None:
                telling.cancel()
        part = Part(
            measured_s=max(0.0, ended_s - start_s),
            cpu_s=cpu_s,
            most_connections=traffic.most_connections,
            first_wrong=traffic.answers.first_wrong,
            first_errors=traffic.answers.first_errors,
            without_retry_after=traffic.answers.without_retry_after,
        )
        return part, traffic.answers.recorder.samples()

    async def close(self) -> None:
        """Close all connections."""
        await self._traffic.close()

    async def _until(self, when_s: float) -> None:
        await self._traffic.wait(when_s - time.monotonic())

    async def _keep_telling(self, tell: Callable[[Progress], None]) -> None:
        told, before_s = 0, time.monotonic()
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            now_s = time.monotonic()
            tell(self._progress(since=told, now_s=now_s, seconds=now_s - before_s))
            told, before_s = len(self._traffic.answers.recorder), now_s

    def _progress(self, *, since: int, now_s: float, seconds: float) -> Progress:
        traffic = self._traffic
        new = traffic.answers.recorder.samples(first=since)
        good = latencies_s(new[is_good(new)]) * 1000
        p50, p99 = np.quantile(good, [0.5, 0.99]).tolist() if len(good) else (None, None)
        return Progress(
            at_s=now_s - traffic.start_s,
            seconds=seconds,
            done=len(new),
            good=len(good),
            shed=int((new["status"] == SHED).sum()),
            outstanding=traffic.outstanding,
            p50_ms=p50,
            p99_ms=p99,
        )
