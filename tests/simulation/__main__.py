"""Run schedules; show the first that fails without all that its failure does not need."""

import gc
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Annotated

import typer

from tests.simulation.outcome import run

_PROCESSES = 2
_LOT = 20
_MOST_SHOWN = 1500


def main(
    schedules: Annotated[int, typer.Option(min=1, help="How many.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the first.")] = 1,
    without: Annotated[str, typer.Option(help="What must not happen in it, separated by commas.")] = "",
) -> None:
    """Run schedules of the whole gateway in virtual time; exit with 1 if one fails."""
    if without:
        _show(seed, without.split(","))
    statuses: Counter[int] = Counter()
    failed: list[int] = []
    with get_context("spawn").Pool(_PROCESSES, gc.freeze) as pool:
        for number, outcome in enumerate(pool.imap(run, range(seed, seed + schedules), _LOT), seed):
            statuses += outcome.statuses
            if outcome.violations:
                failed.append(number)
                print(f"seed {number}: {outcome.violations[0][:_MOST_SHOWN]}", flush=True)
    print(
        f"{schedules} schedules, {len(failed)} failed; responses by status: {dict(sorted(statuses.items()))}"
    )
    if failed:
        _show(failed[0], _unneeded(failed[0]))


def _unneeded(seed: int) -> list[str]:
    """Return the names of what a failing schedule need not have, first many at a time."""
    without: list[str] = []
    lot = 64
    while lot:
        names = run(seed, without).names
        for start in range(0, len(names), lot):
            tried = [*without, *names[start : start + lot]]
            without = tried if run(seed, tried).violations else without
        lot //= 2
    return without


def _show(seed: int, without: Sequence[str]) -> None:
    outcome = run(seed, without)
    print(f"seed {seed}, trace {outcome.trace}, with {', '.join(outcome.names)}")
    print(*[violation[:_MOST_SHOWN] for violation in outcome.violations], sep="\n")
    print(f"scripts/fuzz schedules --seed {seed} --without {','.join(without)}")
    raise typer.Exit(bool(outcome.violations))


if __name__ == "__main__":
    typer.run(main)
