"""Overload: goodput, time to a refusal, and memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.fault_costs.findings import Finding, faults_of, mark_line
from benchmarks.fault_costs.model import (
    FIXED_MS,
    PATH,
    ROW_MS,
    limit_per_s,
    payload,
    sleeping_model,
)
from benchmarks.fault_costs.snapshots import Snapshot, at_times, growth, take_snapshot
from benchmarks.harness.marks import at_least, at_most
from benchmarks.harness.rounds import Tell, run_plan
from benchmarks.harness.sheets import Sheet, text
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SHED, latencies_s, measured, spread
from uncork_loadtests.generator.share import Progress
from uncork_loadtests.servers import BenchError, Server
from uncork_loadtests.traffic.plan import Plan

# One, so that the generator keeps up with ten times its capacity.
_WORKERS = 1
_LIMIT_ROWS = 32
_GOAL_S = 1.0
# Two batches per worker: a full one is always queued, and the goal is far.
_CLIENTS = 2 * _WORKERS * _LIMIT_ROWS
_WARMUP_S = 3.0
_FACTORS = (4.0, 10.0)
# Shares of the run, for 60 s: 10 s, 30 s, the end.
_MOMENTS = (1 / 6, 1 / 2, 1.0)
_REFUSED_MS = 50.0
_ALLOWED = frozenset({200, SHED})


@dataclass(frozen=True, kw_only=True)
class Step:
    """A load, and its result."""

    name: str
    outcome: Outcome
    snapshots: Sequence[Snapshot]

    @property
    def answered_per_s(self) -> float:
        return self.outcome.summary().good / self.outcome.measured_s

    @property
    def goodput_per_s(self) -> float:
        """Good answers within the goal per second, by the client's clock since the scheduled time."""
        summary = self.outcome.summary()
        return (summary.in_goal or 0.0) * summary.requests / self.outcome.measured_s

    def took_ms(self, status: int, percentile: str) -> float | None:
        """Return a percentile of the latency of a status; None for too few answers."""
        found = spread(self._latencies_s(status))
        return found.percentiles_ms[percentile] if found is not None else None

    @property
    def refused_soon(self) -> float | None:
        """Share of refusals within the mark; None without any."""
        found = self._latencies_s(SHED)
        return float((found <= _REFUSED_MS / 1000).mean()) if len(found) else None

    def _latencies_s(self, status: int) -> NDArray[np.float64]:
        samples = measured(self.outcome.samples, seconds=self.outcome.measured_s)
        return latencies_s(samples[samples["status"] == status])


def measure_overload(seconds: float, *, tell: Tell) -> Finding:
    """Find the capacity by a closed loop, then offer several times as much in an open loop.

    Raises:
        BenchError: if the gateway does not start or ends, or a generator fails.
    """
    options = {"--mb-max-batch-size": _LIMIT_ROWS, "--mb-max-latency": _GOAL_S * 1000}
    with sleeping_model(options, workers=_WORKERS) as server:
        saturated = _step(
            server,
            name=f"{_CLIENTS} clients in a closed loop",
            clients=_CLIENTS,
            seconds=seconds / 4,
            tell=tell,
        )
        capacity = saturated.answered_per_s
        if not capacity:
            raise BenchError(f"no request was answered:\n{server.last_words()}")
        overloads = [
            _step(
                server,
                name=f"{factor:g} times the capacity",
                rate=factor * capacity,
                seconds=seconds,
                tell=tell,
            )
            for factor in _FACTORS
        ]
    return finding(saturated, overloads)


def finding(saturated: Step, overloads: Sequence[Step]) -> Finding:
    """Tabulate the steps; the marks are those of the first overload."""
    capacity, limit = saturated.answered_per_s, limit_per_s(_LIMIT_ROWS, workers=_WORKERS)
    steps = [saturated, *overloads]
    answers = Sheet(
        title="Overload",
        columns=[
            *("load", "requests/s", "200/s", "in goal/s", "in goal / capacity", "200: p99 ms"),
            *(
                "503/s",
                "503: p50 ms",
                f"503: in {_REFUSED_MS:g} ms",
                "503: p99 ms",
                "503 without Retry-After",
                "lag p99 ms",
            ),
        ],
        rows=[_row(step, capacity=capacity) for step in steps],
        notes=_marks(overloads[0], capacity=capacity),
    )
    return Finding(
        paragraph=f"""
            **Overload**: {_WORKERS} worker that takes {FIXED_MS:g} + {ROW_MS:g} n ms for n rows, with at most
            {_LIMIT_ROWS} rows in a batch, so at most {limit:.0f} rows/s. The capacity is the rate measured in
            a closed loop, {capacity:.0f} rows/s. The overload is Poisson arrivals of single rows with a goal
            of {_GOAL_S * 1000:g} ms. Clients measure times from the scheduled time of each request.
        """,
        sheets=[answers, _memory_sheet(overloads[-1])],
        faults=[fault for step in steps for fault in faults_of(step.name, step.outcome, allowed=_ALLOWED)],
    )


def _step(
    server: Server,
    *,
    name: str,
    seconds: float,
    tell: Tell,
    rate: float | None = None,
    clients: int | None = None,
) -> Step:
    snapshots: list[Snapshot] = []

    def watch(progress: Progress) -> None:
        tell(f"{name}: {progress.at_s:.0f} of {seconds:g} s")
        if progress.at_s >= 0:
            snapshots.append(take_snapshot(server, at_s=progress.at_s))

    plan = Plan(
        url=server.url(PATH),
        payload=payload(),
        rate=rate,
        clients=clients,
        seconds=seconds,
        warmup_s=_WARMUP_S,
        goal_s=_GOAL_S,
    )
    return Step(name=name, outcome=run_plan(plan, tell=watch), snapshots=snapshots)


def _row(step: Step, *, capacity: float) -> list[str]:
    summary = step.outcome.summary()
    lag = summary.lag
    return [
        step.name,
        text(summary.offered_per_s, digits=0),
        text(step.answered_per_s, digits=0),
        text(step.goodput_per_s, digits=0),
        text(step.goodput_per_s / capacity, digits=3),
        text(step.took_ms(200, "99"), digits=0),
        text(summary.shed / step.outcome.measured_s, digits=0),
        text(step.took_ms(SHED, "50"), digits=1),
        text(step.refused_soon, digits=3),
        text(step.took_ms(SHED, "99"), digits=1),
        str(step.outcome.without_retry_after),
        text(lag.percentiles_ms["99"] if lag else None, digits=1),
    ]


def _marks(step: Step, *, capacity: float) -> list[str]:
    void = step.outcome.void
    return [
        mark_line(
            f"{step.name}: good answers within the goal / capacity",
            step.goodput_per_s / capacity,
            bound=at_least(0.87),
            digits=3,
            void=void,
        ),
        mark_line(
            f"{step.name}: median time to a 503",
            step.took_ms(SHED, "50"),
            bound=at_most(_REFUSED_MS),
            unit="ms",
            digits=1,
            void=void,
        ),
    ]


def _memory_sheet(step: Step) -> Sheet:
    seconds = step.outcome.plan.seconds
    moments = [share * seconds for share in _MOMENTS]
    return Sheet(
        title=f"Memory at {step.name}",
        columns=["after", "resident MB", "rows queued", "bytes queued"],
        rows=[
            [
                f"{one.at_s:.0f} s",
                text(one.memory_bytes, digits=1, scale=1e-6),
                text(one.queue_rows, digits=0),
                text(one.queue_bytes, digits=0),
            ]
            for one in (at_times(step.snapshots, moments) if step.snapshots else [])
        ],
        notes=[
            mark_line(
                f"highest memory since {moments[0]:.0f} s / memory at {moments[0]:.0f} s",
                growth(step.snapshots, since_s=moments[0]),
                bound=at_most(1.1),
                digits=3,
                void=step.outcome.void,
            ),
            f"largest queue, rows: {max((one.queue_rows for one in step.snapshots), default=0):,}",
        ],
    )
