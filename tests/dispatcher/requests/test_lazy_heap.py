"""A heap whose entries can be removed at any place."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.requests.lazy_heap import LazyHeap


def test_members_in_their_order_without_those_that_were_removed() -> None:
    members = dict(enumerate("abcdef"))
    heap = LazyHeap(members, [(9 - key, key) for key in members])
    del members[2], members[5]
    assert list(heap.ascending()) == ["e", "d", "b", "a"]
    assert list(islice(heap.ascending(), 2)) == ["e", "d"]
    assert heap.top() == "e"


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_any_members_come_in_their_order(added: list[tuple[int, bool]]) -> None:
    """Of equal times, in that of their numbers."""
    members: dict[int, tuple[int, int]] = {}
    heap = LazyHeap(members)
    for key, (at, _) in enumerate(added):
        members[key] = at, key
        heap.push(at, key)
    for key, (_, is_removed) in enumerate(added):
        if is_removed:
            del members[key]
    assert list(heap.ascending()) == sorted(members.values())
