"""Other rules for the requests that share a padded batch, released when a worker is free, against ``cork``.

``scripts/bench padding --rivals`` runs it. Razor's Edge is by Arrman Anicket Saha ("Razor's Edge: Throughput
Optimized Dynamic Batching with Latency Objectives", 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks.harness.sheets import Sheet
from benchmarks.models.members import MEMBERS
from benchmarks.padding.cells import in_processes, padded_cells
from benchmarks.padding.findings import BATCHES, Finding, Traffic, spread
from benchmarks.padding.tables import TITLES, groups
from uncork_dispatcher.simulator import Cell, measure

RIVALS = {
    "tokens, 16,384": ("fifo", "fixed:0"),
    "tokens, 2,048": ("fifo", "fixed:0:2048"),
    "sorted, 16,384": ("sorted", "fixed:0"),
    "sorted, 2,048": ("sorted", "fixed:0:2048"),
    "Razor's Edge": ("razor", "fixed:0"),
    "Razor's Edge, MINMAX": ("razor-minmax", "fixed:0"),
}
"""For each, its members (of :data:`MEMBERS`) and its policy, with the limit of a batch."""


def rival_cells(*, quick: bool) -> list[Cell]:
    """Return the declared cells, or a few of them."""
    return padded_cells(
        lengths=("lognormal:64:1", "bimodal:16:512:0.1"),
        fixed=(200,) if quick else (8, 200, 1000, 4000),
        workers=(1,) if quick else (1, 4),
        loads=(0.8,),
        clients=(64,) if quick else (16, 64),
    )


def find_rivals(
    cells: Sequence[Cell], seeds: Sequence[int], *, processes: int, tell: Callable[[int, int], None]
) -> dict[str, list[Finding]]:
    """Measure ``cork`` and all rivals; in the findings, a rival has the place of ``cork`` before."""
    found = in_processes(partial(_rivals_in, seeds=seeds), cells, processes=processes, tell=tell)
    return {name: [one[name] for one in found] for name in RIVALS}


def _rivals_in(cell: Cell, seeds: Sequence[int]) -> Mapping[str, Finding]:
    ours = [measure(cell, "cork", seed, batches=BATCHES) for seed in seeds]
    found = {}
    for name, (members, policy) in RIVALS.items():
        with MEMBERS[members]():
            theirs = [measure(cell, policy, seed, batches=BATCHES) for seed in seeds]
        found[name] = Finding(cell, theirs, theirs, ours)
    return found


def rival_sheets(found: Mapping[str, Sequence[Finding]]) -> list[Sheet]:
    """Tabulate the ratios of ``cork`` to each rival, by traffic and figure."""
    figures = {"closed": ("rows_per_s", "requests/s"), "Poisson": ("mean_ms", "mean")}
    return [
        _sheet(traffic, figure, f"{title}: {name} of cork / other rule", found)
        for traffic, title in TITLES.items()
        for figure, name in (figures.get(traffic, figures["Poisson"]), ("p99_ms", "p99"))
        if any(one.traffic == traffic for one in found[next(iter(found))])
    ]


def _sheet(traffic: Traffic, figure: str, title: str, found: Mapping[str, Sequence[Finding]]) -> Sheet:
    rows: dict[str, list[str]] = {}
    for findings in found.values():
        for group, some in groups(traffic, [one for one in findings if one.traffic == traffic]):
            rows.setdefault(group, [str(len(some))]).append(str(spread(some, figure, "before")))
    return Sheet(
        title=title,
        columns=["cells", "number", *found],
        rows=[[group, *cells] for group, cells in rows.items()],
    )
