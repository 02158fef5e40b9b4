"""Compare policies in simulated open loops where requests differ in cost and batches hold few of them.

Each cell has a model of ``fixed + cost`` units of 20 µs, several workers, Poisson arrivals, and a
distribution of costs with a mean of about 100 units. All policies get the same arrivals with the same costs.
The figures are ratios to release when free: of mean latency, of its 99th percentile, and of that of the
costliest tenth. ``cork-without-requests`` is the policy whose balance looks at costs only.

    scripts/bench unequal-costs --processes 2 --seeds 2
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import fmean, geometric_mean
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

# Importing the variants registers them, in worker processes as well.
import benchmarks.ablation_variants  # noqa: F401
from benchmarks.harness.cli import JsonFile, MarkdownFile, write_json
from benchmarks.harness.sheets import Sheet, markdown, output, show
from uncork_dispatcher.simulator import RELEASE_WHEN_FREE, Scenario, ServiceTime, open_loop, simulate
from uncork_dispatcher.simulator.run import Answered

_FIRST_SEED = 101
_UNIT_S = 20e-6
_LIMIT = 16_384
_NOISE_CV = 0.1
_MEAN = 100.0
_WARM_UP = 0.2
_COSTLIEST = 0.1
_FIGURES = ("mean", "p99", "costliest p99")


def _lognormal(cv: float) -> Callable[[random.Random], float]:
    """Return a function that draws whole costs of at least 1."""
    variance = math.log1p(cv**2)
    location, scale = math.log(_MEAN) - variance / 2, math.sqrt(variance)
    return lambda random_: max(1.0, round(random_.lognormvariate(location, scale)))


COSTS: dict[str, Callable[[random.Random], float]] = {
    "lognormal 0.5": _lognormal(0.5),
    "lognormal 1": _lognormal(1.0),
    "lognormal 2": _lognormal(2.0),
    "bimodal": lambda random_: 20.0 if random_.random() < 0.8 else 420.0,
}
"""Draws of the cost of a request; the number is the coefficient of variation."""


class CostCell(NamedTuple):
    """A model, its workers, and its traffic."""

    fixed: int
    """Units of the fixed part of a batch."""
    costs: str
    workers: int
    load: float
    """Share of the capacity with full batches that do not pad."""
    padding: float
    """1 if the model pads each row to the longest of its batch, else 0."""

    def __str__(self) -> str:
        pads = " padded" if self.padding else ""
        return f"{self.fixed}+n{pads} W={self.workers} {self.load:g} {self.costs}"


def cells_of(padding: float) -> list[CostCell]:
    """Return the cells: small fixed parts, so that most batches hold few requests."""
    return [CostCell(*each, padding) for each in product((8, 50, 200), COSTS, (2, 4, 8), (0.1, 0.4))]


class Task(NamedTuple):
    """One run of a policy in a cell."""

    cell: CostCell
    policy: str
    seed: int
    requests: int


def run(task: Task) -> tuple[float, ...]:
    """Return the seconds of each figure in one run, after a warm-up."""
    cell, count = task.cell, task.requests
    # Text as a seed gives the same numbers in every process, unlike the hash of a tuple.
    random_ = random.Random(f"{cell} {task.seed}")
    costs = [COSTS[cell.costs](random_) for _ in range(count)]
    service = ServiceTime(
        intercept_s=cell.fixed * _UNIT_S, slope_s=_UNIT_S, padding=cell.padding, noise_cv=_NOISE_CV
    )
    rate = cell.load * service.capacity(workers=cell.workers, limit_rows=_LIMIT) / _MEAN
    arrivals = open_loop("poisson", rate=rate, count=count, random_=random_)
    # Not drawn during the run: its random numbers depend on the policy.
    following = iter(costs)
    seen = simulate(
        Scenario(
            service=service,
            arrivals=arrivals,
            workers=cell.workers,
            limit_rows=_LIMIT,
            policy=task.policy,
            lengths=lambda _: next(following),
            seed=task.seed,
        )
    )
    begin = arrivals[int(_WARM_UP * count)]
    return figures(seen.answered, dict(zip(arrivals, costs, strict=True)), begin=begin)


def figures(
    answered: Iterable[Answered], costs: Mapping[float, float], *, begin: float
) -> tuple[float, float, float]:
    """Return mean latency, its 99th percentile, and that of the costliest tenth, in seconds.

    Requests that arrived before ``begin`` do not count. ``costs`` has the cost of each request, by arrival.
    """
    counted = [one for one in answered if one.arrival >= begin]
    latencies = sorted(one.finish - one.arrival for one in counted)
    counted.sort(key=lambda one: costs[one.arrival])
    costliest = counted[int((1 - _COSTLIEST) * len(counted)) :]
    of_costliest = sorted(one.finish - one.arrival for one in costliest)
    return fmean(latencies), _p99(latencies), _p99(of_costliest)


def _p99(ordered: Sequence[float]) -> float:
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


Ratios = dict[CostCell, dict[str, list[float]]]
"""Each figure relative to release when free, by cell and policy: geometric means over the seeds."""


def ratios_of(seen: Mapping[Task, Sequence[float]]) -> Ratios:
    """Return the ratios of all policies but release when free."""
    by_cell: dict[CostCell, dict[str, list[list[float]]]] = {}
    for task, measured in seen.items():
        if task.policy != RELEASE_WHEN_FREE:
            base = seen[task._replace(policy=RELEASE_WHEN_FREE)]
            ratios = [one / other for one, other in zip(measured, base, strict=True)]
            by_cell.setdefault(task.cell, {}).setdefault(task.policy, []).append(ratios)
    return {
        cell: {policy: list(map(geometric_mean, zip(*seeds, strict=True))) for policy, seeds in found.items()}
        for cell, found in by_cell.items()
    }


def sheets_of(ratios: Ratios, policies: Sequence[str]) -> list[Sheet]:
    """Return the summary of each policy, and the table of all cells."""
    summary = []
    for policy in policies:
        texts = [policy]
        for place in range(len(_FIGURES)):
            found = [by_policy[policy][place] for by_policy in ratios.values()]
            texts += [f"{geometric_mean(found):.3f}", f"{max(found):.3f}", f"{min(found):.3f}"]
        summary.append(texts)
    every = [
        [str(cell), *(f"{value:.3f}" for policy in policies for value in by_policy[policy])]
        for cell, by_policy in ratios.items()
    ]
    title = f"{len(ratios)} cells, relative to {RELEASE_WHEN_FREE}"
    heads = [head for figure in _FIGURES for head in (figure, "worst cell", "best cell")]
    columns = [f"{policy}: {figure}" for policy in policies for figure in _FIGURES]
    return [
        Sheet(title=title, columns=["policy", *heads], rows=summary),
        Sheet(title=f"{title}: each", columns=["cell", *columns], rows=every),
    ]


def main(
    policy: Annotated[str, typer.Option(help="Policies to compare, separated by commas.")] = (
        "cork-without-requests,cork"
    ),
    padding: Annotated[float, typer.Option(min=0, max=1, help="Share of the padding that takes time.")] = 0.0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with different seeds.")] = 1,
    requests: Annotated[int, typer.Option(min=200, help="Requests of each run.")] = 4000,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the runs.")] = 1,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare policies where requests differ in cost and batches hold about one of them."""
    policies = [name.strip() for name in policy.split(",") if name.strip() != RELEASE_WHEN_FREE]
    tasks = [
        Task(*each, requests)
        for each in product(
            cells_of(padding), [RELEASE_WHEN_FREE, *policies], range(_FIRST_SEED, _FIRST_SEED + seeds)
        )
    ]
    with ProcessPoolExecutor(processes) as pool:
        found = track(
            pool.map(run, tasks), total=len(tasks), console=Console(stderr=True), description="runs"
        )
        seen = dict(zip(tasks, found, strict=True))
    sheets = sheets_of(ratios_of(seen), policies)
    for sheet in sheets:
        show(sheet, console=output())
    if json_file is not None:
        write_json(
            [{**task._asdict(), "cell": str(task.cell), "seconds": each} for task, each in seen.items()],
            json_file,
        )
    if markdown_file is not None:
        markdown_file.write_text("\n".join(map(markdown, sheets)))


if __name__ == "__main__":
    typer.run(main)
