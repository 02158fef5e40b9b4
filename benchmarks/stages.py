"""Compare a worker whose stages overlap with one without, and with two workers that share the device.

All three serve the same model (`benchmarks/services/stages.py`) and get the same traffic in turns. The result
is the ratio to one worker without stages: of answers per second in a closed loop, of the mean latency with
Poisson arrivals.

    scripts/bench stages --rounds 5 --markdown stages.md
"""

import contextlib
import os
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, exit_with, publish, reporting_failures
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.sheets import Sheet, interval_text
from uncork_loadtests.compare import alternate
from uncork_loadtests.servers import words
from uncork_loadtests.targets import aimed, our_service
from uncork_loadtests.traffic.plan import Payload, Plan

_SERVICE = SERVICES / "stages.py"
_ENTRANTS = {"one worker": ("InTurn", 1), "stages": ("InStages", 1), "two workers": ("InTurn", 2)}
_COMPARED = [*_ENTRANTS][1:]
# Workers decide within 16 batches whether overlap pays.
_WARMUP_S = 3.0
_FIGURES = {"answered_per_s": "answers/s", "mean_ms": "mean latency", "p99_ms": "p99"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Preparation of 64 rows, the model, and the load: a rate, or closed-loop clients."""

    prepare_ms: float
    needs_gil: bool = True
    launches: int = 0
    rate: float | None = None
    clients: int | None = None

    def __str__(self) -> str:
        work = "Python" if self.needs_gil else "no GIL"
        model = f", {self.launches} launches" if self.launches else ""
        traffic = f"Poisson {self.rate:g}/s" if self.rate else f"{self.clients} clients"
        return f"{self.prepare_ms:g} ms {work}{model}, {traffic}"

    @property
    def environment(self) -> dict[str, str]:
        """The setting for the service."""
        return {
            "STAGES_PREPARE_MS": str(self.prepare_ms),
            "STAGES_GIL": "yes" if self.needs_gil else "no",
            "STAGES_LAUNCHES": str(self.launches),
        }

    @property
    def figures(self) -> list[str]:
        """The keys of `_FIGURES` to compare."""
        return ["answered_per_s"] if self.clients else ["mean_ms", "p99_ms"]


SETTINGS = (
    Setting(prepare_ms=8, clients=256),
    Setting(prepare_ms=24, clients=256),
    Setting(prepare_ms=35, needs_gil=False, clients=256),
    Setting(prepare_ms=8, launches=40, clients=256),
    Setting(prepare_ms=8, clients=64),
    Setting(prepare_ms=8, rate=300),
    Setting(prepare_ms=8, rate=600),
    Setting(prepare_ms=0, clients=1),
)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 3.")] = 5.0,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare overlapping stages with one and with two workers."""
    progress = Console(stderr=True)
    rows: list[list[str]] = []
    notes: list[str] = []
    faults: list[str] = []
    with reporting_failures("stages", progress=progress):
        for setting in SETTINGS:
            os.environ |= setting.environment
            with contextlib.ExitStack() as stack, progress.status(str(setting)) as status:
                plan = Plan(
                    url="http://service/",
                    payload=Payload(bodies=(b"1.5",), expected=(b"3.0",)),
                    rate=setting.rate,
                    clients=setting.clients,
                    seconds=seconds,
                    warmup_s=_WARMUP_S,
                )
                entrants = {}
                for name, (service, workers) in _ENTRANTS.items():
                    options = words({"--workers": workers})
                    server = stack.enter_context(our_service(f"{_SERVICE}:{service}", options=options))
                    entrants[name] = (server, aimed(plan, server, path="/predict"))
                seen = alternate(str(_SERVICE), entrants, rounds=rounds, tell=status.update)
            ratios = {result.policy: result.ratios for result in seen.results}
            rows += [
                [
                    str(setting),
                    _FIGURES[figure],
                    *[interval_text(ratios.get(name, {}).get(figure)) for name in _COMPARED],
                ]
                for figure in setting.figures
            ]
            notes += [
                f"{setting}: round {one.number + 1} left out: {one.reason}" for one in seen.rounds.left_out
            ]
            faults += [f"{setting}: {fault}" for fault in seen.faults]
    sheet = Sheet(
        title="Ratio to one worker without stages (95 %)",
        columns=["prepare of 64 rows, traffic", "of", *_COMPARED],
        rows=rows,
        notes=notes,
    )
    publish([sheet], markdown_file=markdown_file)
    exit_with(faults, progress=progress)
