"""Compare a FastAPI application that calls a model for each request with two that batch.

All three have the same model, the forest of the digits example, and one process of uvicorn. One calls the
model in FastAPI's threads, one through `@batched`, and one has the service mounted, with one worker. They get
the same traffic in turns. The result is the ratio to the first, of one run.

    scripts/bench fastapi --rounds 5 --markdown fastapi.md
"""

import sys
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.gateway import digits_rows
from benchmarks.harness.cli import MarkdownFile, exit_with, publish, reporting_failures
from benchmarks.harness.rounds import Round, Target, ask_alone, interleave, measure, target
from benchmarks.harness.sheets import Sheet
from benchmarks.harness.wrk import choose_generator, run_wrk
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import BenchError, serve

ENTRANTS = {
    "FastAPI alone": ("alone", "/predict", "/docs"),
    "`@batched`": ("with_batched", "/predict", "/docs"),
    "`mount`": ("mounted", "/models/predict", "/models/readyz"),
}
"""The factory of each application, the path of its route, and one that is there once it is ready."""
APPS = "benchmarks.services.fastapi_apps"


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up.")] = 4.0,
    connections: Annotated[int, typer.Option(min=1, help="Closed-loop clients.")] = 64,
    generator: Annotated[str, typer.Option(help="auto, python or wrk; auto is wrk if installed.")] = "auto",
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare FastAPI alone with `@batched` and with `mount`."""
    progress = Console(stderr=True)
    with (
        reporting_failures("fastapi", progress=progress),
        ExitStack() as stack,
        progress.status("starting") as status,
    ):
        load = run_wrk if choose_generator(generator) == "wrk" else None
        targets = {name: _target(stack, name, seconds, connections) for name in ENTRANTS}
        if len({each.plan.payload.expected for each in targets.values()}) > 1:
            raise BenchError("the applications give different answers")
        found = interleave(
            targets,
            rounds=rounds,
            measure=lambda name, number: measure(targets[name], load=load),
            tell=status.update,
        )
    publish([sheet_of(found, clients=connections)], markdown_file=markdown_file)
    faults = [f"{name}: {one.fault}" for name, some in found.items() for one in some if one.fault]
    exit_with(faults, progress=progress)


def _target(stack: ExitStack, name: str, seconds: float, clients: int) -> Target:
    """Start an application until the stack ends, and return it as a target with known answers."""
    factory, path, ready_path = ENTRANTS[name]
    command = (sys.executable, "-m", "uvicorn", f"{APPS}:{factory}", "--factory", "--no-access-log")
    server = stack.enter_context(serve(name, command=command, ready_path=ready_path))
    bodies = digits_rows()
    made = target(server, path=path, bodies=bodies, expected=ask_alone(server, path=path, bodies=bodies))
    return replace(made, plan=replace(made.plan, seconds=seconds, clients=clients))


def sheet_of(found: dict[str, list[Round]], *, clients: int) -> Sheet:
    """Return the medians of all rounds that count, and of the ratios within them."""
    [first, *_] = found
    numbers = [at for at in range(len(found[first])) if not any(some[at].void for some in found.values())]
    if not numbers:
        raise BenchError(
            f"no round counts: {next(one.void for some in found.values() for one in some if one.void)}"
        )

    def row(name: str) -> list[str]:
        counted = [(found[name][at], found[first][at]) for at in numbers]
        ratios = [one.requests_per_second / base.requests_per_second for one, base in counted]
        slow = [one.p99 / base.p99 for one, base in counted if one.p99 and base.p99]
        per_s = median(one.requests_per_second for one, _ in counted)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        return [
            name,
            f"{per_s:.0f}",
            f"{median(ratios):.2f} ({spread})",
            f"{median(slow):.2f}" if slow else "",
        ]

    return Sheet(
        title=f"Digits in a FastAPI application, {clients} closed-loop clients",
        columns=["application", "answers/s", "ratio (range)", "ratio of p99"],
        rows=[row(name) for name in found],
        notes=[f"{plural(len(numbers), 'round')} of {len(found[first])} counted"],
    )
