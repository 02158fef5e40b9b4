"""Measure whether policies differ on a real gateway as the simulator says.

A sleeping model behind every policy, in turns, under the same traffic; the same cell in the simulator. What
is compared is the ratio to release when free (fixed:0): of the mean latency with Poisson arrivals, of the
answers per second with clients that wait for theirs.

    python -m uncork_loadtests.live --rounds 5 --markdown live.md
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from uncork_dispatcher.simulator import ALL_POLICIES, Cell
from uncork_dispatcher.simulator import measure as simulate
from uncork_loadtests.compare import Comparison, Contest, compare
from uncork_loadtests.endings import MarkdownFile, exit_with, telling_failures
from uncork_loadtests.fleet import LoadTestError
from uncork_loadtests.intervals import Interval
from uncork_loadtests.peers.sheets import Sheet, markdown, output, show
from uncork_loadtests.plan import Payload, Plan
from uncork_loadtests.servers import BenchError

_SERVICE = f"{Path(__file__).parent / 'services' / 'sleep.py'}:Sleep"
_BASE = "fixed:0"
# Long enough for aimd to raise its cap row by row, and for cork-classic to fit its model.
_WARMUP_S = 6.0
_GOAL_MS = 10_000.0
_LIMIT_ROWS = 64
# What a batch and a client's way back cost beside the model, about; see docs/performance.md.
_TRANSPORT_MS = 0.4
_ROUND_TRIP_MS = 1.0
_SEEDS = (101, 102, 103)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A model, its workers, and what is put on them: a rate, or clients that wait for their answers."""

    intercept_ms: float
    slope_ms: float
    workers: int
    rate: float | None = None
    clients: int | None = None

    def __str__(self) -> str:
        traffic = f"Poisson {self.rate:g}/s" if self.rate else f"{self.clients} clients"
        return f"{self.intercept_ms:g} + {self.slope_ms:g} n ms, {self.workers} workers, {traffic}"

    @property
    def policies(self) -> list[str]:
        """The base first. One request at a time cannot carry the rates of the open loops."""
        others = [name for name in ALL_POLICIES if name != _BASE]
        return [_BASE, *(name for name in others if self.clients or name != "none")]

    def plan(self, seconds: float) -> Plan:
        """The traffic for a server."""
        return Plan(
            url="http://service/",
            payload=Payload(bodies=(b"[5.1,3.5,1.4,0.2]",), expected=(b"10.2",)),
            rate=self.rate,
            clients=self.clients,
            seconds=seconds,
            warmup_s=_WARMUP_S,
        )

    def cell(self) -> Cell:
        """The same for the simulator."""
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
)


_ALL = ",".join(str(number) for number in range(1, len(SETTINGS) + 1))


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 6.")] = 5.0,
    only: Annotated[
        str, typer.Option(help=f"Numbers of settings, 1 to {len(SETTINGS)}, with commas between them.")
    ] = _ALL,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare every policy with release when free, live and simulated."""
    chosen = parse_settings(only)
    progress = Console(stderr=True)
    rows: list[list[str]] = []
    left_out: list[str] = []
    faults: list[str] = []
    with telling_failures("live", progress=progress):
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
        columns=["setting", "policy", "of", "live (95 %)", "simulated"],
        rows=rows,
        notes=left_out,
    )
    show(sheet, console=output())
    if markdown_file is not None:
        markdown_file.write_text(markdown(sheet))
    exit_with(faults, progress=progress)


def parse_settings(only: str) -> list[Setting]:
    """Read numbers of settings; typer.BadParameter if there is none of a number."""
    by_number = {str(number): setting for number, setting in enumerate(SETTINGS, start=1)}
    numbers = [number.strip() for number in only.split(",")]
    for number in numbers:
        if number not in by_number:
            raise typer.BadParameter(f"settings are numbered 1 to {len(SETTINGS)}, as 1,5; got {only!r}")
    return [by_number[number] for number in numbers]


def measure(setting: Setting, *, rounds: int, seconds: float, tell: Callable[[str], None]) -> Comparison:
    """Put the traffic of a setting on a real gateway under every policy.

    Raises:
        BenchError: if a server does not start or does not answer.
    """
    os.environ["PEER_INTERCEPT_MS"] = str(setting.intercept_ms)
    os.environ["PEER_SLOPE_MS"] = str(setting.slope_ms)
    options = {
        "--workers": setting.workers,
        "--mb-max-latency": _GOAL_MS,
        "--mb-max-batch-size": _LIMIT_ROWS,
    }
    contest = Contest(
        target=_SERVICE,
        policies=setting.policies,
        plan=setting.plan(seconds),
        rounds=rounds,
        options=[text for name, value in options.items() for text in (name, str(value))],
    )
    try:
        return compare(contest, tell=lambda doing: tell(f"{setting}: {doing}"))
    except LoadTestError as error:
        raise BenchError(str(error)) from error


def simulated(setting: Setting) -> dict[str, float]:
    """Of each policy, the ratio to the base: the median over some seeds."""
    found: dict[str, list[float]] = {}
    for seed in _SEEDS:
        seen = {name: simulate(setting.cell(), name, seed) for name in setting.policies}
        for name, each in seen.items():
            base = seen[_BASE]
            ratio = each.rows_per_s / base.rows_per_s if setting.clients else each.mean_ms / base.mean_ms
            found.setdefault(name, []).append(ratio)
    return {name: median(ratios) for name, ratios in found.items()}


def rows_of(setting: Setting, seen: Comparison) -> list[list[str]]:
    """A row for each policy but the base."""
    metric = "answered_per_s" if setting.clients else "mean_ms"
    expected = simulated(setting)
    ratios = {result.policy: result.ratios[metric] for result in seen.results}
    return [
        [
            str(setting),
            policy,
            "answers/s" if setting.clients else "mean latency",
            _interval(ratios.get(policy)),
            f"{expected[policy]:.2f}",
        ]
        for policy in setting.policies[1:]
    ]


def _interval(ratio: Interval | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} .. {ratio.high:.2f})"


if __name__ == "__main__":
    typer.run(main)
