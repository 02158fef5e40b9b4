"""What the figures of one point say: the best entrant, and the ratio to it."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from benchmarks.peers.loads import Round

Figure = Literal["requests_per_second", "p50", "p99", "in_goal", "soon", "front_cpu"]
"""A field of Round that entrants are compared by."""
_LESS_IS_BETTER = ("p50", "p99", "front_cpu")
Values = Sequence[float | None]
"""A figure in every round; None where a round has none."""


def less_is_better(figure: Figure) -> bool:
    """Whether the smaller of two values of a figure is the better one."""
    return figure in _LESS_IS_BETTER


def values(rounds: Sequence[Round | None], *, figure: Figure) -> list[float | None]:
    """The figure in every round; a void round has none."""
    return [None if each is None else getattr(each, figure) for each in rounds]


def best(rounds: Mapping[str, Sequence[Round | None]], *, figure: Figure, among: Iterable[str]) -> str | None:
    """Whose median is the best of these very rounds, which can only favour it.

    Who has a figure in less than half of the rounds is not the best; None if nobody has more.
    """
    medians = {}
    for name in among:
        known = [value for value in values(rounds[name], figure=figure) if value is not None]
        if known and 2 * len(known) >= len(rounds[name]):
            medians[name] = median(known)
    pick = min if less_is_better(figure) else max
    return pick(medians, key=lambda name: medians[name]) if medians else None


def ratios(ours: Values, *, by: Values) -> list[float]:
    """Divide round by round, where both have a figure."""
    return [a / b for a, b in zip(ours, by, strict=True) if a is not None and b]
