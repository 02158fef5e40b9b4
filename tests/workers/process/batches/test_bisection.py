"""The search for the requests that make a batch fail."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.process.batches.bisection import Bisected, bisect


class Poisoned:
    """A run that fails for each group with a poisoned request, and records its calls."""

    def __init__(self, *poison: int) -> None:
        self.poison = set(poison)
        self.calls: list[list[int]] = []

    def __call__(self, group: Sequence[int]) -> list[str] | BaseException:
        self.calls.append(list(group))
        bad = self.poison & set(group)
        return ValueError(*sorted(bad)) if bad else [str(request) for request in group]


def search(requests: Sequence[int], run: Poisoned) -> Bisected[str]:
    """Bisect, and check that each request has exactly one, correct outcome."""
    found = bisect(requests, run)
    assert sorted([*found.results, *found.culprits, *found.given_up]) == list(requests)
    assert all(found.results[request] == str(request) for request in found.results)
    assert all(culprit.args == (request,) for request, culprit in found.culprits.items())
    assert run.poison.isdisjoint(found.results)
    return found


@pytest.mark.parametrize("count", range(2, 34))
def test_one_culprit_is_found_within_the_promised_calls(count: int) -> None:
    for culprit in range(count):
        run = Poisoned(culprit)

        found = search(range(count), run)

        assert list(found.culprits) == [culprit]
        assert len(found.results) == count - 1
        assert len(run.calls) <= 2 * math.log2(count)


@given(requests=st.sets(st.integers(0, 200), min_size=2, max_size=100).map(sorted), data=st.data())
def test_up_to_four_culprits_are_always_found(requests: list[int], data: st.DataObject) -> None:
    poison = data.draw(st.sets(st.sampled_from(requests), min_size=1, max_size=4))
    run = Poisoned(*poison)

    found = search(requests, run)

    assert set(found.culprits) == poison
    assert found.given_up == []


@given(requests=st.sets(st.integers(0, 200), min_size=2, max_size=100).map(sorted), data=st.data())
def test_culprits_beyond_count_do_not_make_the_search_long(requests: list[int], data: st.DataObject) -> None:
    """At most eight calls per level, and no request that succeeded is given up."""
    run = Poisoned(*data.draw(st.sets(st.sampled_from(requests), min_size=1)))

    found = search(requests, run)

    assert len(run.calls) <= 8 * math.ceil(math.log2(len(requests)))
    worked = {request for group in run.calls if run.poison.isdisjoint(group) for request in group}
    assert set(found.results) == worked


def test_the_search_is_given_up_when_all_fail() -> None:
    """After 2 + 4 + 8 calls."""
    run = Poisoned(*range(64))

    found = search(range(64), run)

    assert len(run.calls) == 14
    assert found.given_up == list(range(64))


def test_those_found_before_it_is_given_up_keep_their_reason() -> None:
    run = Poisoned(*range(9))

    found = search(range(9), run)

    assert list(found.culprits) == [0, 1, 2, 3, 4, 5, 6]
    assert found.given_up == [7, 8]


def test_a_half_that_must_have_failed_is_not_run_again() -> None:
    """If the left half succeeds, the right one must fail."""
    run = Poisoned(3)

    search(range(4), run)

    assert run.calls == [[0, 1], [2], [3]]


def test_requests_that_only_fail_together_are_all_answered() -> None:
    """A batch may just be too large for the device's memory."""
    calls: list[int] = []

    def run(group: Sequence[int]) -> list[int] | BaseException:
        calls.append(len(group))
        return MemoryError() if len(group) > 4 else list(group)

    found = bisect(range(16), run)

    assert found.results == {request: request for request in range(16)}
    assert (found.culprits, found.given_up) == ({}, [])
    assert max(calls[2:]) <= 4
