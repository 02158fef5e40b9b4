"""Marks: what a ratio should reach, and whether it does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from uncork_loadtests.compare import Interval, median_interval

State = Literal["met", "missed", "within the noise", "too few rounds", "no mark"]
Values = Sequence[float | None]
"""A figure in every round; None if a round has none."""
# With fewer rounds the interval of the median is too narrow to judge by.
_LEAST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A bound of a ratio."""

    value: float
    upper: bool
    """Whether it is the highest permitted value; otherwise the lowest."""

    def holds(self, ratio: float) -> bool:
        """Whether a ratio without noise is within the bound; NaN is not."""
        return ratio <= self.value if self.upper else ratio >= self.value

    def state(self, ratios: Sequence[float]) -> State:
        """Judge one ratio per round; a bound inside their 95 % interval is within the noise."""
        if len(ratios) < _LEAST_ROUNDS:
            return "too few rounds"
        found = median_interval(ratios)
        if self.holds(found.high if self.upper else found.low):
            return "met"
        missed = (found.low > self.value) if self.upper else (found.high < self.value)
        return "missed" if missed else "within the noise"

    def __str__(self) -> str:
        return f"at {'most' if self.upper else 'least'} {self.value:g}"


def at_most(value: float) -> Bound:
    return Bound(value=value, upper=True)


def at_least(value: float) -> Bound:
    return Bound(value=value, upper=False)


def ratios(values: Values, *, by: Values) -> list[float]:
    """Divide round by round, where both have a figure."""
    return [a / b for a, b in zip(values, by, strict=True) if a is not None and b]


def ratio_interval(values: Values, *, by: Values) -> Interval | None:
    """Return the median of these ratios with its interval; None without any."""
    found = ratios(values, by=by)
    return median_interval(found) if found else None
