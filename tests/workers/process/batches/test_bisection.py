"""The search for the requests that make a batch fail."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.process.batches.bisection import Bisection

R = TypeVar("R")


class Poisoned:
    """A run that fails for each group with a poisoned request, and records its calls."""

    def __init__(self, *poison: int) -> None:
        self.poison = set(poison)
        self.calls: list[list[int]] = []

    def __call__(self, group: Sequence[int]) -> list[str] | BaseException:
        self.calls.append(list(group))
        bad = self.poison & set(group)
        return ValueError(*sorted(bad)) if bad else [str(request) for request in group]


def bisect(requests: Sequence[int], run: Callable[[Sequence[int]], list[R] | BaseException]) -> Bisection[R]:
    found: Bisection[R] = Bisection(requests)
    while found.part is not None:
        found.ran(run(found.part))
    return found


def search(requests: Sequence[int], run: Poisoned) -> Bisection[str]:
    """Bisect, and check that each request has exactly one, correct outcome."""
    found = bisect(requests, run)
    assert sorted([*found.results, *found.culprits, *found.given_up]) == list(requests)
    assert all(found.results[request] == str(request) for request in found.results)
    assert all(culprit.args == (request,) for request, culprit in found.culprits.items())
    assert run.poison.isdisjoint(found.results)
    alone = [tuple(call) for call in run.calls]
    assert len(alone) == len(set(alone))
    return found


@pytest.mark.parametrize("count", range(2, 34))
def test_one_culprit_is_found_within_the_promised_calls(count: int) -> None:
    for culprit in range(count):
        run = Poisoned(culprit)

        found = search(range(count), run)

        assert list(found.culprits) == [culprit]
        assert len(found.results) == count - 1
        assert len(run.calls) <= 2 * math.log2(count)


REQUESTS = st.sets(st.integers(0, 200), min_size=2, max_size=100).map(sorted)


@given(requests=REQUESTS, data=st.data())
def test_all_are_answered_if_half_are_good(requests: list[int], data: st.DataObject) -> None:
    """However the others lie: many parts fail on one level."""
    poison = data.draw(st.sets(st.sampled_from(requests), min_size=1, max_size=max(1, len(requests) // 2)))
    run = Poisoned(*poison)

    found = search(requests, run)

    assert set(found.culprits) == poison
    assert found.given_up == []
    assert len(run.calls) <= 2 * len(requests)


@given(requests=st.sets(st.integers(0, 99), min_size=2, max_size=20).map(sorted), data=st.data())
def test_in_a_small_batch_the_only_good_one_is_found(requests: list[int], data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(requests))

    found = search(requests, Poisoned(*{*requests} - {good}))

    assert list(found.results) == [good]
    assert found.given_up == []


@given(requests=REQUESTS, data=st.data())
def test_what_is_given_up_has_failed_with_samples_of_its_level(
    requests: list[int], data: st.DataObject
) -> None:
    run = Poisoned(*data.draw(st.sets(st.sampled_from(requests), min_size=1)))

    found = search(requests, run)

    worked = {request for group in run.calls if run.poison.isdisjoint(group) for request in group}
    assert set(found.results) == worked
    if found.given_up:
        assert len(found.given_up) > 16
        assert len(found.culprits) >= 10


def test_the_search_is_given_up_when_all_fail() -> None:
    """After 2 + 4 + 8 parts and 16 requests alone."""
    run = Poisoned(*range(64))

    found = search(range(64), run)

    assert [len(call) for call in run.calls] == [32] * 2 + [16] * 4 + [8] * 8 + [1] * 16
    assert list(found.culprits) == list(range(0, 64, 4))
    assert len(found.given_up) == 48


def test_the_search_goes_on_if_a_request_succeeds_alone() -> None:
    """Of 64, two in each eight are good: no part of eight succeeds."""
    good = {request for request in range(64) if request % 8 in (4, 5)}

    found = search(range(64), Poisoned(*{*range(64)} - good))

    assert set(found.results) == good
    assert found.given_up == []


def test_the_search_goes_on_in_a_level_where_a_part_succeeds() -> None:
    """Although more than four fail: six of eight parts, then six of twelve."""
    bad = {request for request in range(64) if request < 48 and request % 8 == 7}

    found = search(range(64), Poisoned(*bad))

    assert set(found.culprits) == bad
    assert found.given_up == []


def test_the_search_can_be_ended_at_any_time() -> None:
    found: Bisection[int] = Bisection(range(8))
    while found.part is not None and len(found.part) > 1:
        found.ran(ValueError() if 5 in found.part else list(found.part))

    assert found.part == [4] or list(found.part or ()) == [4]
    assert set(found.results) == {0, 1, 2, 3, 6, 7} - set(found.given_up)
    assert {4, 5} <= set(found.given_up)


def test_a_half_that_must_have_failed_is_not_run_again() -> None:
    """If the left half succeeds, the right one must fail."""
    run = Poisoned(3)

    search(range(4), run)

    assert run.calls == [[0, 1], [2], [3]]


@pytest.mark.parametrize(("count", "room"), [(16, 4), (64, 7), (64, 1), (256, 7), (256, 31), (1000, 1)])
def test_requests_that_only_fail_together_are_all_answered(count: int, room: int) -> None:
    """A batch may just be too large for the device's memory."""

    def run(group: Sequence[int]) -> list[int] | BaseException:
        return MemoryError() if len(group) > room else list(group)

    found = bisect(range(count), run)

    assert found.results == {request: request for request in range(count)}
    assert (found.culprits, found.given_up) == ({}, [])
