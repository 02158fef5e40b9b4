"""How a batch that ran out of memory is cut into parts."""

import itertools
import math
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_workers.process.batches.chunks import CallSizes
from uncork_workers.process.batches.failure import Failure
from uncork_workers.process.batches.parts_that_fit import PartsThatFit
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.cutting import Extent

COSTS = st.lists(st.lists(st.integers(1, 20), max_size=4), min_size=1, max_size=40)
SIZES = st.builds(
    CallSizes,
    st.sampled_from([None, [1, 4, 16], [2, 64]]),
    st.sampled_from([(), (8, 16)]),
    st.booleans(),
)


class Searched:
    """The parts of a search in which exactly those fail that are larger than a room."""

    def __init__(self, costs: list[list[int]], sizes: CallSizes, known: float, room: float) -> None:
        self.counted = 0
        self.parts: list[tuple[int, ...]] = []
        self.limits: list[float] = []
        requests = {at: Extent(len(each), sum(each), max(each, default=0)) for at, each in enumerate(costs)}
        search: PartsThatFit[int] = PartsThatFit(requests, self.counting(sizes), SizeLimit(known))
        while search.part is not None:
            part = tuple(search.part)
            rows = [cost for at in part for cost in costs[at]]
            self.parts.append(part)
            self.limits.append(search.limit.most)
            size = sizes.of(len(rows), rows)
            failure = Failure(MemoryError(), Searched, size=size)
            search.ran(failure if size > room else part, rows=len(rows), size=size)
        self.search = search

    def counting(self, sizes: CallSizes) -> Callable[[Extent], float]:
        def size(call: Extent) -> float:
            self.counted += 1
            return sizes.size(call)

        return size


@at_most(200)
@given(COSTS, SIZES, st.integers(1, 100), st.integers(1, 400))
@example([[1, 1, 1, 1], [], [1]], CallSizes([1, 4, 16]), 1, 1)
def test_parts_within_the_limit_are_as_large_as_they_can_be(
    costs: list[list[int]], sizes: CallSizes, known: float, room: float
) -> None:
    """Requests keep their order, and each is answered or at fault itself."""
    searched = Searched(costs, sizes, known, room)

    def size(part: tuple[int, ...]) -> float:
        rows = [cost for at in part for cost in costs[at]]
        return sizes.of(len(rows), rows)

    answered = [at for part in searched.parts if size(part) <= room for at in part]
    assert answered == sorted(searched.search.results)
    assert {*answered, *searched.search.culprits} == {*range(len(costs))}
    assert not {*answered} & {*searched.search.culprits}
    for part, limit in zip(searched.parts[1:], searched.limits[1:], strict=True):
        assert len(part) == 1 or size(part) <= limit
    if known <= room:
        for part, following in itertools.pairwise(searched.parts[1:]):
            has_rows = any(costs[at] for at in part)  # without rows, a request may be alone
            assert not has_rows or size((*part, following[0])) > known


@given(st.integers(2, 8))
def test_the_cost_of_cutting_grows_with_the_number_of_requests(power: int) -> None:
    """Not with its square: a batch of small requests has thousands."""
    count = 2**power
    assert Searched([[1]] * count, CallSizes(), math.inf, count / 2).counted <= 4 * count
    assert Searched([[1]] * count, CallSizes(), 2, 2).counted <= 4 * count
