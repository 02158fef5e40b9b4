"""Find the requests that make a batch fail, so that the others can be answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")
_MOST_FAILING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected(Generic[R]):
    """The outcome of the search, by position of the request.

    Attributes:
        results: results of requests that succeeded, alone or in a group.
        culprits: exceptions of requests that failed alone.
        given_up: requests that had failed only in groups when the search was given up.
    """

    results: dict[int, R]
    culprits: dict[int, BaseException]
    given_up: list[int]


def bisect(
    requests: Sequence[int], run: Callable[[Sequence[int]], Sequence[R] | BaseException]
) -> Bisected[R]:
    """Halve a group of requests that failed together, level by level, until each culprit is alone.

    One culprit among n requests takes at most 2*log2(n) calls of ``run``. If more than four groups fail on
    one level, single bad rows are not the cause, and the search is given up.

    Args:
        requests: the positions of two or more requests.
        run: returns one result per request of a group, or the exception with which the group failed.
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
            # So the right half fails; running it would only confirm that, unless it is a single request.
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
