"""Rows and requests are cut into calls that fit."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.wire.costs import Extent, cut


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1),
    most=st.integers(1, 12),
    longest=st.integers(1, 60),
)
def test_calls_have_all_items_in_order_and_are_as_large_as_fits(
    sizes: list[tuple[int, int]], most: int, longest: int
) -> None:
    def fits(call: Extent) -> bool:
        return call.rows <= most and call.rows * call.longest <= longest and call.cost <= 30

    items = [Extent(rows, rows * cost, cost) for rows, cost in sizes]
    found = cut(items, fits)

    def whole(call: list[int]) -> Extent:
        rows, costs, longests = zip(*[items[at] for at in call], strict=True)
        return Extent(sum(rows), sum(costs), max(longests))

    assert [at for call in found for at in call] == list(range(len(items)))
    for call in found:
        assert len(call) == 1 or fits(whole([*call]))
    for call, other in itertools.pairwise(found):
        assert not fits(whole([*call, other.start]))
