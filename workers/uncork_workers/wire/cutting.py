"""Cut rows, or requests with several rows, into calls that fit."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """The number of some rows, their total cost, and the largest cost of one; without costs, 0."""

    rows: int = 0
    cost: float = 0.0
    longest: float = 0.0

    def plus(self, other: "Extent") -> "Extent":
        return Extent(self.rows + other.rows, self.cost + other.cost, max(self.longest, other.longest))


def cut(items: Sequence[Extent], fits: Callable[[Extent], bool]) -> list[range]:
    """Return the items of each call, in order, by position; an item that does not fit has its own call."""
    calls: list[range] = []
    begin, total = 0, Extent()
    for at, item in enumerate(items):
        total = total.plus(item)
        if at > begin and not fits(total):
            calls.append(range(begin, at))
            begin, total = at, item
    return [*calls, range(begin, len(items))]
