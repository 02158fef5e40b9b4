"""Figures derived from simulated comparisons, and all figures as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from uncork.cli.terminal import as_document
from uncork_dispatcher.simulator import Comparison, Result


def as_json(comparisons: Sequence[Comparison], *, seeds: Sequence[int], requests: int | None) -> bytes:
    """Encode all figures; unknown ones are null.

    ``requests`` is the number asked for in each run; null lets each cell choose.
    """
    policies = [result.policy for result in comparisons[0].results]
    return as_document(
        {
            "base": comparisons[0].base,
            "policies": policies,
            "seeds": list(seeds),
            "requests": requests,
            "cells": [_cell_figures(one, seeds) for one in comparisons],
        }
    )


def shed_share(result: Result) -> float:
    return fmean(one.shed_share for one in result.by_seed)


def in_goal(result: Result) -> float:
    """Return the share of all requests, shed ones included, that were answered within the goal."""
    return fmean(one.in_goal for one in result.by_seed)


def _cell_figures(comparison: Comparison, seeds: Sequence[int]) -> dict[str, Any]:
    cell = comparison.cell
    return {
        "name": str(cell),
        **asdict(cell),
        "rate_per_s": cell.rate,
        "capacity_per_s": cell.capacity,
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
