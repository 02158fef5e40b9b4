"""Compare the policies' differences on a real gateway with those in the simulator.

One gateway serves a sleeping model under each policy, and gets the same traffic for each in turns; the
simulator runs the same cell. The result is the ratio to release when free (fixed:0): of the mean latency with
Poisson arrivals, and of answers per second in a closed loop. With one worker, where `cork` should equal
release when free, it is the ratio of mean, p50 and p99 latency and of rows per batch.

Poisson arrivals share a pool of connections, live and simulated: a request takes the connection that was
freed last, or a new one if all are busy.

    scripts/bench live --rounds 5 --markdown live.md
"""

import os
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, Only, exit_with, numbered, publish, reporting_failures
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.rounds import Tell
from benchmarks.harness.sheets import Sheet, interval_text
from uncork_dispatcher.simulator import ALL_POLICIES, Cell
from uncork_dispatcher.simulator import measure as simulate
from uncork_dispatcher.wording import plural
from uncork_loadtests.compare import Comparison, Interval, alternate, median_interval
from uncork_loadtests.servers import words
from uncork_loadtests.targets import aimed, our_service
from uncork_loadtests.traffic.plan import Payload, Plan

_SERVICE = f"{SERVICES / 'policies.py'}:Policies"
_BASE = "fixed:0"
# Long enough for aimd to raise its cap row by row, and for cork-classic to fit its model.
_WARMUP_S = 6.0
_GOAL_MS = 10_000.0
_LIMIT_ROWS = 64
# Approximate time of a batch's transport, and of a client's round trip.
_TRANSPORT_MS = 0.4
_ROUND_TRIP_MS = 1.0
_SEEDS = range(101, 106)
_FIGURES = {
    "answered_per_s": ("answers/s", "rows_per_s"),
    "mean_ms": ("mean latency", "mean_ms"),
    "p50_ms": ("p50", "p50_ms"),
    "p99_ms": ("p99", "p99_ms"),
    "batch_rows": ("rows per batch", "batch_rows"),
}
"""Live figure: its name in the table, and in the simulator."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A model, its workers, and the load: a rate, or closed-loop clients."""

    intercept_ms: float
    slope_ms: float
    workers: int
    rate: float | None = None
    clients: int | None = None

    def __str__(self) -> str:
        traffic = f"Poisson {self.rate:g}/s" if self.rate else f"{self.clients} clients"
        workers = plural(self.workers, "worker")
        return f"{self.intercept_ms:g} + {self.slope_ms:g} n ms, {workers}, {traffic}"

    @property
    def policies(self) -> list[str]:
        """The policies, base first. With one worker only `cork`; `none` cannot carry the open loops."""
        if self.workers == 1:
            return [_BASE, "cork"]
        others = [name for name in ALL_POLICIES if name != _BASE]
        return [_BASE, *(name for name in others if self.clients or name != "none")]

    @property
    def figures(self) -> list[str]:
        """The keys of `_FIGURES` to compare."""
        if self.clients:
            return ["answered_per_s"]
        return ["mean_ms", "p50_ms", "p99_ms", "batch_rows"] if self.workers == 1 else ["mean_ms"]

    def plan(self, seconds: float) -> Plan:
        """Return the traffic for a server."""
        return Plan(
            url="http://service/",
            payload=Payload(bodies=(b"[5.1,3.5,1.4,0.2]",), expected=(b"10.2",)),
            rate=self.rate,
            clients=self.clients,
            seconds=seconds,
            warmup_s=_WARMUP_S,
        )

    def cell(self) -> Cell:
        """Return the same for the simulator."""
        full_ms = self.intercept_ms + _TRANSPORT_MS + self.slope_ms * _LIMIT_ROWS
        capacity = self.workers * _LIMIT_ROWS / full_ms * 1000
        return Cell(
            intercept_ms=self.intercept_ms + _TRANSPORT_MS,
            slope_ms=self.slope_ms,
            workers=self.workers,
            limit_rows=_LIMIT_ROWS,
            goal_ms=_GOAL_MS,
            load=self.rate / capacity if self.rate else None,
            clients=self.clients,
            round_trip_ms=_ROUND_TRIP_MS,
            sources="clients" if self.clients else "pool",
        )


SETTINGS = (
    Setting(intercept_ms=10, slope_ms=0.2, workers=2, rate=800),
    Setting(intercept_ms=10, slope_ms=0.2, workers=4, rate=1200),
    Setting(intercept_ms=40, slope_ms=1, workers=2, rate=400),
    Setting(intercept_ms=40, slope_ms=1, workers=4, rate=600),
    Setting(intercept_ms=10, slope_ms=0.2, workers=2, clients=32),
    Setting(intercept_ms=10, slope_ms=0.2, workers=4, clients=64),
    Setting(intercept_ms=40, slope_ms=1, workers=2, clients=32),
    Setting(intercept_ms=40, slope_ms=1, workers=4, clients=64),
    *(Setting(intercept_ms=5, slope_ms=0.1, workers=1, rate=rate) for rate in (400, 800, 1200, 2400)),
)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 6.")] = 5.0,
    only: Only = "",
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare policies with release when free, live and simulated."""
    chosen = numbered(only, SETTINGS)
    progress = Console(stderr=True)
    rows: list[list[str]] = []
    left_out: list[str] = []
    faults: list[str] = []
    with reporting_failures("live", progress=progress):
        for setting in chosen:
            with progress.status(str(setting)) as status:
                seen = measure(setting, rounds=rounds, seconds=seconds, tell=status.update)
                rows += rows_of(setting, seen)
            left_out += [
                f"{setting}: round {one.number + 1} left out: {one.policy} {one.reason}"
                for one in seen.rounds.left_out
            ]
            faults += [f"{setting}: {fault}" for fault in seen.faults]
    sheet = Sheet(
        title="Ratio to release when free, live and simulated",
        columns=["setting", "policy", "of", "live (95 %)", "simulated (95 %)"],
        rows=rows,
        notes=left_out,
    )
    publish([sheet], markdown_file=markdown_file)
    exit_with(faults, progress=progress)


def measure(setting: Setting, *, rounds: int, seconds: float, tell: Tell) -> Comparison:
    """Put the traffic of a setting on a real gateway under each of its policies.

    Raises:
        BenchError: if the gateway does not start or does not answer.
    """
    os.environ["PEER_INTERCEPT_MS"] = str(setting.intercept_ms)
    os.environ["PEER_SLOPE_MS"] = str(setting.slope_ms)
    options = {
        "--workers": setting.workers,
        "--mb-max-latency": _GOAL_MS,
        "--mb-max-batch-size": _LIMIT_ROWS,
    }
    with our_service(_SERVICE, options=words(options)) as server:
        entrants = {
            policy: (server, aimed(setting.plan(seconds), server, path=f"/{policy}"))
            for policy in setting.policies
        }
        return alternate(_SERVICE, entrants, rounds=rounds, tell=lambda step: tell(f"{setting}: {step}"))


def simulated(setting: Setting) -> dict[str, dict[str, Interval]]:
    """Return the ratio to the base by policy and figure, over some seeds."""
    seen = {
        policy: [simulate(setting.cell(), policy, seed) for seed in _SEEDS] for policy in setting.policies
    }
    return {
        policy: {
            figure: median_interval(
                [
                    getattr(one, _FIGURES[figure][1]) / getattr(base, _FIGURES[figure][1])
                    for one, base in zip(measured, seen[_BASE], strict=True)
                ]
            )
            for figure in setting.figures
        }
        for policy, measured in seen.items()
    }


def rows_of(setting: Setting, seen: Comparison) -> list[list[str]]:
    """Return a row for each figure of each policy but the base."""
    expected = simulated(setting)
    ratios = {result.policy: result.ratios for result in seen.results}
    return [
        [
            str(setting),
            policy,
            _FIGURES[figure][0],
            interval_text(ratios.get(policy, {}).get(figure)),
            interval_text(expected[policy][figure]),
        ]
        for policy in setting.policies[1:]
        for figure in setting.figures
    ]
