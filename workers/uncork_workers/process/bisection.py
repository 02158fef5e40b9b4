"""Finds the requests that make a batch fail, so that the others can be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")
_MOST_FAILING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected(Generic[R]):
    """What became of the requests of a batch that failed as a whole.

    Attributes:
        results: of those that worked, alone or in company.
        culprits: those that failed alone, and how.
        given_up: those that only failed in company when the search was given up.
    """

    results: dict[int, R]
    culprits: dict[int, BaseException]
    given_up: list[int]


def bisect(
    requests: Sequence[int], run: Callable[[Sequence[int]], Sequence[R] | BaseException]
) -> Bisected[R]:
    """Halve two or more requests that failed together, level by level, until each culprit stands alone.

    ``run`` gives one result for each request of a group, or how the group failed. It is called at most
    2*log2(n) times for one culprit among n requests. More than four groups that fail on one level are no
    single bad row: the search is given up.
    """
    results: dict[int, R] = {}
    culprits: dict[int, BaseException] = {}

    def fails(group: Sequence[int]) -> bool:
        outcome = run(group)
        if not isinstance(outcome, BaseException):
            results.update(zip(group, outcome, strict=True))
            return False
        if len(group) == 1:
            culprits[group[0]] = outcome
        return True

    def failing_halves(group: Sequence[int]) -> list[Sequence[int]]:
        left, right = group[: len(group) // 2], group[len(group) // 2 :]
        if not fails(left):
            # It is the right half that failed, then; to see that again would teach nothing.
            return [right] if len(right) > 1 or fails(right) else []
        return [left, right] if fails(right) else [left]

    failing = [requests]
    while failing:
        failed = [half for group in failing for half in failing_halves(group)]
        failing = [half for half in failed if len(half) > 1]
        if len(failed) > _MOST_FAILING:
            break
    given_up = [request for group in failing for request in group]
    return Bisected(results=results, culprits=culprits, given_up=given_up)
