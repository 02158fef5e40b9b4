"""Figures derived from simulated comparisons, and all figures as JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from uncork.cli.terminal import NOTHING, as_document
from uncork_dispatcher.simulator import Cell, Comparison, Result, staggered_per_s


def as_json(
    comparisons: Sequence[Comparison], *, seeds: Sequence[int], requests: int | None, matrix: str | None
) -> bytes:
    """Encode all figures; unknown ones are null.

    ``requests`` is the number asked for in each run; null lets each cell choose.
    """
    policies = [result.policy for result in comparisons[0].results]
    return as_document(
        {
            "matrix": matrix,
            "base": comparisons[0].base,
            "policies": policies,
            "seeds": list(seeds),
            "requests": requests,
            "cells": [_cell_figures(one, seeds) for one in comparisons],
            "summary": {policy: _summary(comparisons, policy) for policy in policies},
        }
    )


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of the known values; NaN if none is known."""
    known = [math.log(value) for value in values if 0 < value < math.inf]
    return math.exp(fmean(known)) if known else math.nan


def staggered_share(cell: Cell, per_s: float) -> float:
    """Return a rate relative to the capacity of staggered workers within the goal; NaN if that is 0."""
    return per_s / _staggered_or_nan(cell)


def shed_share(result: Result) -> float:
    return fmean(one.shed_share for one in result.by_seed)


def in_goal(result: Result) -> float:
    """Return the share of all requests, shed ones included, that were answered within the goal."""
    return fmean(one.in_goal for one in result.by_seed)


def open_loops(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [one for one in comparisons if one.cell.clients is None]


def closed_loops(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [one for one in comparisons if one.cell.clients is not None]


def over_cells(comparisons: Sequence[Comparison], policy: str, name: str) -> dict[str, Any]:
    """Return the geometric mean of a policy's ratio over cells, and its worst cell.

    ``mean`` relates to the base policy, ``mean_to_best`` to the best other policy in each cell; likewise
    ``p99`` and ``throughput``.
    """
    kind = name.removesuffix("_to_best")
    best = max if kind == "throughput" else min
    known = {}
    for one in comparisons:
        values = {result.policy: getattr(result, kind).value for result in one.results}
        value = values.pop(policy)
        others = [other for other in values.values() if not math.isnan(other)]
        if name != kind:
            value = value / best(others) if others else math.nan
        if not math.isnan(value):
            known[one.cell] = value
    if not known:
        return {"geometric_mean": math.nan, "worst": math.nan, "worst_cell": NOTHING}
    worst = (min if kind == "throughput" else max)(known, key=lambda cell: known[cell])
    return {
        "geometric_mean": geometric_mean(known.values()),
        "worst": known[worst],
        "worst_cell": str(worst),
    }


def _staggered_or_nan(cell: Cell) -> float:
    try:
        return staggered_per_s(cell)
    except ValueError:
        return math.nan


def _cell_figures(comparison: Comparison, seeds: Sequence[int]) -> dict[str, Any]:
    cell = comparison.cell
    return {
        "name": str(cell),
        **asdict(cell),
        "rate_per_s": cell.rate,
        "capacity_per_s": cell.capacity,
        "staggered_per_s": _staggered_or_nan(cell),
        "policies": {
            result.policy: {
                "average": {
                    **asdict(result.average),
                    "shed_share": shed_share(result),
                    "in_goal": in_goal(result),
                },
                "by_seed": [
                    {"seed": seed, **asdict(one), "shed_share": one.shed_share, "in_goal": one.in_goal}
                    for seed, one in zip(seeds, result.by_seed, strict=True)
                ],
                "ratios": {name: getattr(result, name)._asdict() for name in ("mean", "p99", "throughput")},
            }
            for result in comparison.results
        },
    }


def _summary(comparisons: Sequence[Comparison], policy: str) -> dict[str, Any]:
    kinds = ((open_loops(comparisons), ("mean", "p99")), (closed_loops(comparisons), ("throughput",)))
    return {
        name: {"cells": len(some), **over_cells(some, policy, name)}
        for some, names in kinds
        for kind in names
        for name in (kind, f"{kind}_to_best")
        if some
    }
