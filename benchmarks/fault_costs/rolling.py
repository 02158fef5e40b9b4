"""Replacement of workers under load: reloaded and recycled, compared with the same load alone."""

import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.fault_costs.findings import Finding, faults_of, mark_line
from benchmarks.fault_costs.model import PATH, limit_per_s, payload, sleeping_model
from benchmarks.fault_costs.snapshots import replaced, take_snapshot
from benchmarks.harness.marks import at_least, at_most
from benchmarks.harness.rounds import Tell, run_plan
from benchmarks.harness.sheets import Sheet, text
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SHED
from uncork_loadtests.generator.share import Progress
from uncork_loadtests.servers import Server
from uncork_loadtests.traffic.plan import Plan

_WORKERS = 2
_LIMIT_ROWS = 32
_GOAL_MS = 1000
_WARMUP_S = 3.0
_RELOADS = 5
_BATCHES = 60
_ALLOWED = frozenset({200, SHED})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way to replace workers."""

    name: str
    reloads: int = 0
    options: Mapping[str, object]
    least_replaced: int = 0
    """With fewer replacements the case proves nothing."""


_BASE = {"--mb-max-batch-size": _LIMIT_ROWS, "--mb-max-latency": _GOAL_MS}
CASES = (
    Case(name="not replaced", options=_BASE),
    Case(
        name=f"reloaded {_RELOADS} times", reloads=_RELOADS, options=_BASE, least_replaced=_RELOADS * _WORKERS
    ),
    Case(
        name=f"recycled after {_BATCHES} batches",
        options={**_BASE, "--max-batches-per-worker": _BATCHES},
        least_replaced=_WORKERS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A case under load, and its result."""

    case: Case
    outcome: Outcome
    replaced: int


def measure_rolling(seconds: float, *, tell: Tell) -> Finding:
    """Run each case in turn, with half of the workers' capacity.

    Raises:
        BenchError: if a gateway does not start or ends, or a generator fails.
    """
    turns = []
    for case in CASES:
        with sleeping_model(case.options, workers=_WORKERS) as server:
            turns.append(_turn(server, case, seconds=seconds, tell=tell))
    return finding(turns)


def due_times_s(count: int, *, seconds: float) -> list[float]:
    """Return even times that leave room at the end."""
    return [seconds * (number + 0.5) / (count + 1) for number in range(count)]


def _turn(server: Server, case: Case, *, seconds: float, tell: Tell) -> Turn:
    due_s = deque(due_times_s(case.reloads, seconds=seconds))
    snapshots = [take_snapshot(server, at_s=-_WARMUP_S)]

    def watch(progress: Progress) -> None:
        tell(f"workers {case.name}: {progress.at_s:.0f} of {seconds:g} s")
        if due_s and progress.at_s >= due_s[0]:
            due_s.popleft()
            os.kill(server.pid, signal.SIGHUP)
        snapshots.append(take_snapshot(server, at_s=progress.at_s))

    plan = Plan(
        url=server.url(PATH),
        payload=payload(),
        rate=limit_per_s(_LIMIT_ROWS, workers=_WORKERS) / 2,
        seconds=seconds,
        warmup_s=_WARMUP_S,
        goal_s=_GOAL_MS / 1000,
    )
    outcome = run_plan(plan, tell=watch)
    return Turn(case=case, outcome=outcome, replaced=replaced(snapshots, workers=_WORKERS))


def finding(turns: Sequence[Turn]) -> Finding:
    """Tabulate the turns; the first is the base of the others."""
    table = Sheet(
        title="Replacement of workers under load",
        columns=["workers", "replaced", "requests", "not 200", "p50 ms", "p99 ms", "p99 / not replaced"],
        rows=[_row(turn, base=turns[0]) for turn in turns],
        notes=[note for turn in turns[1:] for note in _marks(turn)],
    )
    return Finding(
        paragraph=f"""
            **Replacement**: Poisson arrivals at half of the capacity of {_WORKERS} such workers, while SIGHUP
            replaces both at once, or `--max-batches-per-worker` one after the other.
        """,
        sheets=[table],
        faults=[
            fault
            for turn in turns
            for fault in faults_of(f"workers {turn.case.name}", turn.outcome, allowed=_ALLOWED)
        ],
    )


def _row(turn: Turn, *, base: Turn) -> list[str]:
    p50, p99 = (_latency_ms(turn, name) for name in ("50", "99"))
    base_p99 = _latency_ms(base, "99")
    return [
        turn.case.name,
        str(turn.replaced),
        text(len(turn.outcome.samples), digits=0),
        str(_not_200(turn)),
        text(p50, digits=0),
        text(p99, digits=0),
        text(p99 / base_p99 if p99 and base_p99 else None, digits=2),
    ]


def _latency_ms(turn: Turn, percentile: str) -> float | None:
    latency = turn.outcome.summary().latency
    return latency.percentiles_ms[percentile] if latency is not None else None


def _not_200(turn: Turn) -> int:
    return int((turn.outcome.samples["status"] != 200).sum())


def _marks(turn: Turn) -> list[str]:
    name, void = turn.case.name, turn.outcome.void
    return [
        mark_line(f"{name}: answers other than 200", _not_200(turn), bound=at_most(0), digits=0, void=void),
        mark_line(
            f"{name}: workers replaced",
            turn.replaced,
            bound=at_least(turn.case.least_replaced),
            digits=0,
        ),
    ]
