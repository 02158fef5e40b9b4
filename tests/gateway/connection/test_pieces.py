"""What arrives in pieces."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.connection.pieces import Pieces

SIZES = st.lists(st.sampled_from([0, 1, 2, 1023, 1024, 5000, 20_000]), max_size=40)


@given(SIZES)
def test_everything_comes_out_in_order(sizes: list[int]) -> None:
    given_pieces = [bytes((at % 256,)) * size for at, size in enumerate(sizes)]
    whole, parts = Pieces(), Pieces()
    for piece in given_pieces:
        whole.add(piece)
        parts.add(piece)
    assert whole.size == parts.size == sum(sizes)
    found = b""
    while parts.size:
        first = parts.take_first()
        if len(first) > 1:
            parts.put_back(first[1:])
        found += first[:1]
        assert parts.size == sum(sizes) - len(found)
    assert found == whole.take() == b"".join(given_pieces)
    assert (whole.size, whole.take()) == (0, b"")


@given(st.lists(st.integers(1, 1100), min_size=1, max_size=20))
def test_small_pieces_take_little_more_than_their_bytes(sizes: list[int]) -> None:
    pieces = Pieces()
    for size in sizes * 100:
        pieces.add(bytes(size))
    objects = [*pieces._chunks, pieces._tail]
    assert sum(map(sys.getsizeof, objects)) < 1.2 * pieces.size + 1000
