"""Put a real gateway under load and faults, and check every answer.

Every request, over HTTP or gRPC, has a number and one right answer. It must get that answer, or one that an
active fault allows, once and within bounded time; ``faults.py`` lists the allowed ones.

    python -m benchmarks.chaos.run --seconds 60 --seed 7 --faults kill,poison
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import randbelow
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from benchmarks.chaos.faults import FAULTS, SETTLE_S, Fault, plan_strikes, possible_faults
from benchmarks.chaos.gateway import Gateway
from benchmarks.chaos.hosts import hosts_on_this_machine
from benchmarks.chaos.other_service import configuration
from benchmarks.chaos.report import Settings, findings, legend, page, sheet
from benchmarks.chaos.stage import MAX_BODY_BYTES
from benchmarks.chaos.trial import DRAIN_TIMEOUT_S, Trial
from benchmarks.harness import trends
from benchmarks.harness.cli import MarkdownFile, choose, exit_with, reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.sheets import output, show
from uncork_loadtests.servers import reserved_port, serve

_SERVICE = f"{SERVICES / 'chaos.py'}:Chaos"
_FIXED_MS = 5.0
_MAX_BATCH_ROWS = 32
_GOAL_MS = 1000
# Of the goal, so that a busy machine misses no deadline without a fault.
_LONGEST_BATCH_SHARE = 1 / 3
# Capacity of the workers relative to the rate; the overload must exceed it.
_CAPACITY_FACTOR = 3.0
_ROWS_PER_REQUEST = 1.2
_NAMES = ", ".join(FAULTS)


def main(
    seconds: Annotated[float, typer.Option(min=2 * SETTLE_S, help="Seconds of load.")] = 300.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the plan; by default a new one.")] = None,
    faults: Annotated[str, typer.Option(help=f"Of {_NAMES}, separated by commas; by default all.")] = "",
    rate: Annotated[float, typer.Option(min=1, help="Requests per second.")] = 1000.0,
    workers: Annotated[int, typer.Option(min=2, help="Worker processes.")] = 3,
    hosts: Annotated[
        int, typer.Option(min=0, help="Hosts of the workers, as network namespaces; needs root.")
    ] = 0,
    series: Annotated[
        Path | None,
        typer.Option(help="Append what is used over time to this file. Print the trends of its runs."),
    ] = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Inject faults into a gateway under load; exit with 1 if an answer is lost or wrong."""
    known = possible_faults(on_hosts=hosts > 0)
    chosen = [known[name] for name in choose(faults or ",".join(known), [*known], what="fault")]
    settings = Settings(
        seconds=seconds,
        seed=randbelow(10_000) if seed is None else seed,
        faults=[fault.name for fault in chosen],
        rate=rate,
        workers=workers,
        hosts=hosts,
    )
    progress = Console(stderr=True)
    with reporting_failures("chaos", progress=progress):
        progress.print(f"$ {settings.command}", style="dim", markup=False, highlight=False, soft_wrap=True)
        trial = run(settings, chosen, progress=progress)
        sheets = [sheet(trial.ledger, settings, notes=trial.notes)]
        show(sheets[0], console=output(), lines=legend(settings))
        if series is not None:
            sheets.append(trends.sheet(trends.append(trial.series, series)))
            show(sheets[1], console=output())
        if markdown_file is not None:
            markdown_file.write_text(page(sheets, settings))
        wrong = findings(trial.ledger)
    exit_with(wrong, progress=progress)


def run(settings: Settings, faults: Sequence[Fault], *, progress: Console) -> Trial:
    """Run the plan against a gateway.

    Raises:
        BenchError: if the gateway does not start, or ends early.
    """
    strikes = plan_strikes(faults, seconds=settings.seconds, seed=settings.seed)
    os.environ["CHAOS_FIXED_MS"] = str(_FIXED_MS)
    os.environ["CHAOS_ROW_MS"] = str(row_ms(settings))
    with progress.status("starting") as status, _gateway(settings) as gateway:
        trial = Trial(gateway, rate=settings.rate, seed=settings.seed, tell=status.update)
        drain = any(not fault.every_s for fault in faults)
        uvloop.run(trial.run(strikes, seconds=settings.seconds, drain=drain))
    return trial


@contextmanager
def _gateway(settings: Settings) -> Iterator[Gateway]:
    """Run a gateway, with its workers on this machine or on hosts, until the block ends."""
    if not settings.hosts:
        with reserved_port() as port, tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "uncork.toml"
            config.write_text(configuration(str(_SERVICE), workers=settings.workers))
            command = _command(settings, ["--config", str(config)], grpc_port=port)
            with serve("uncork", command=command) as server:
                yield Gateway(server, workers=settings.workers, grpc_port=port, config=config)
        return
    names = [f"host{number}" for number in range(1, settings.hosts + 1)]
    with (
        reserved_port() as port,
        tempfile.TemporaryDirectory() as folder,
        hosts_on_this_machine(names, target=_SERVICE, workers=settings.workers, folder=Path(folder)) as hosts,
        serve(
            "uncork", command=_command(settings, [str(_SERVICE), *hosts.gateway_arguments], grpc_port=port)
        ) as server,
    ):
        yield Gateway(server, workers=settings.workers, grpc_port=port, hosts=hosts)


def row_ms(settings: Settings) -> float:
    """Return the cost of a row with which full batches carry three times the rate."""
    rows_per_s = _CAPACITY_FACTOR * settings.rate * _ROWS_PER_REQUEST
    return max(0.0, settings.workers * 1000 / rows_per_s - _FIXED_MS / _MAX_BATCH_ROWS)


def max_batch_rows(settings: Settings) -> int:
    """Return the most rows of a batch: fewer if rows are slow."""
    longest_ms = _LONGEST_BATCH_SHARE * _GOAL_MS
    return max(1, int(min(_MAX_BATCH_ROWS, (longest_ms - _FIXED_MS) / max(row_ms(settings), 0.01))))


def _command(settings: Settings, served: Sequence[str], *, grpc_port: int) -> list[str]:
    options = {
        "--grpc-port": grpc_port,
        "--mb-max-batch-size": max_batch_rows(settings),
        "--mb-max-latency": _GOAL_MS,
        "--max-body-bytes": MAX_BODY_BYTES,
        "--max-queue-rows": max(200, round(settings.rate / 2)),
        "--drain-timeout": DRAIN_TIMEOUT_S,
    }
    return [*uncork_serve(None, options), *served]


if __name__ == "__main__":
    typer.run(main)
