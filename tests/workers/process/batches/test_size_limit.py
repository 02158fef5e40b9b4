"""What is learned from calls that run out of memory."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.process.batches.size_limit import SizeLimit


def run(limit: SizeLimit, *, wanted: float, room: float) -> bool:
    """Run one call as large as allowed; return whether it fitted."""
    size = min(wanted, limit.most)
    if size <= room:
        limit.worked(size)
        return True
    limit.failed(size)
    return False


@given(room=st.integers(1, 1000), wanted=st.integers(1, 2000))
def test_the_limit_comes_to_lie_between_85_percent_of_the_room_and_all_of_it(room: int, wanted: int) -> None:
    limit = SizeLimit()
    for _ in range(40):
        run(limit, wanted=wanted, room=room)

    if wanted <= room:
        assert limit.most == math.inf
    else:
        assert 0.85 * room - 1 <= limit.most <= room


@given(room=st.integers(4, 1000))
def test_few_calls_fail_once_it_is_known(room: int) -> None:
    limit = SizeLimit()
    for _ in range(100):
        run(limit, wanted=10_000, room=room)

    failed = sum(not run(limit, wanted=10_000, room=room) for _ in range(3000))

    assert failed < 30


@pytest.mark.parametrize("factor", [2, 8, 32])
def test_more_room_is_found(factor: int) -> None:
    limit = SizeLimit()
    for _ in range(60):
        run(limit, wanted=10_000, room=32)
    for _ in range(200):
        run(limit, wanted=10_000, room=32 * factor)

    assert limit.most >= 0.85 * 32 * factor


@given(room=st.integers(2, 1000), less=st.integers(1, 1000))
def test_less_room_is_found(room: int, less: int) -> None:
    limit = SizeLimit()
    for now in (room, min(room, less)):
        for _ in range(60):
            run(limit, wanted=10_000, room=now)

    assert limit.most <= math.ceil(1.25 * min(room, less))


@given(st.lists(st.tuples(st.booleans(), st.floats(1, 1e6), st.booleans())))
def test_a_limit_allows_a_row_whatever_happens(events: list[tuple[bool, float, bool]]) -> None:
    limit = SizeLimit()
    for worked, size, is_sure in events:
        if worked:
            limit.worked(size)
        else:
            limit.failed(size, is_sure=is_sure)
        assert limit.most >= 1
