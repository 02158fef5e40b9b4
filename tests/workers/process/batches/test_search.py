"""The search in a failed batch: for requests at fault, and for parts that fit into memory."""

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_workers.process.batches.chunks import CallSizes
from uncork_workers.process.batches.failures import FailedCall
from uncork_workers.process.batches.search import Search
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.costs import Extent

Found = Search[str, FailedCall]


def failure(error: BaseException, size: float = 1) -> FailedCall:
    return FailedCall(error, rows=int(size), size=size)


def search_among(requests: Sequence[int], error: BaseException) -> Found:
    """Begin a search in requests of one row that have failed together."""
    extents = dict.fromkeys(requests, Extent(1))
    return Search(extents, failure(error, len(requests)), size=CallSizes().size, limit=SizeLimit())


class Poisoned:
    """A run that fails for each group with a poisoned request, and records its calls."""

    def __init__(self, *poison: int) -> None:
        self.poison = set(poison)
        self.calls: list[list[int]] = []

    def __call__(self, group: Sequence[int]) -> list[str] | FailedCall:
        self.calls.append(list(group))
        bad = self.poison & set(group)
        return failure(ValueError(*sorted(bad))) if bad else [str(request) for request in group]


def given_up(found: Found) -> list[int]:
    return [at for at in found.faults if at not in found.culprits]


def search(requests: Sequence[int], run: Poisoned) -> Found:
    """Search to the end, and check that each request has exactly one, correct outcome."""
    found = search_among(requests, ValueError())
    while found.part is not None:
        found.ran(run(found.part))
    assert sorted([*found.results, *found.faults]) == list(requests)
    assert all(found.results[request] == str(request) for request in found.results)
    assert all(culprit.error.args == (request,) for request, culprit in found.culprits.items())
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
    assert given_up(found) == []
    assert len(run.calls) <= 2 * len(requests)


@given(requests=st.sets(st.integers(0, 99), min_size=2, max_size=20).map(sorted), data=st.data())
def test_in_a_small_batch_the_only_good_one_is_found(requests: list[int], data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(requests))

    found = search(requests, Poisoned(*{*requests} - {good}))

    assert list(found.results) == [good]
    assert given_up(found) == []


@given(requests=REQUESTS, data=st.data())
def test_what_is_given_up_has_failed_with_samples_of_its_level(
    requests: list[int], data: st.DataObject
) -> None:
    run = Poisoned(*data.draw(st.sets(st.sampled_from(requests), min_size=1)))

    found = search(requests, run)

    worked = {request for group in run.calls if run.poison.isdisjoint(group) for request in group}
    assert set(found.results) == worked
    if given_up(found):
        assert len(given_up(found)) > 16
        assert len(found.culprits) >= 10


def test_the_search_is_given_up_when_all_fail() -> None:
    """After 2 + 4 + 8 parts and 16 requests alone."""
    run = Poisoned(*range(64))

    found = search(range(64), run)

    assert [len(call) for call in run.calls] == [32] * 2 + [16] * 4 + [8] * 8 + [1] * 16
    assert list(found.culprits) == list(range(0, 64, 4))
    assert len(given_up(found)) == 48


def test_the_search_goes_on_if_a_request_succeeds_alone() -> None:
    """Of 64, two in each eight are good: no part of eight succeeds."""
    good = {request for request in range(64) if request % 8 in (4, 5)}

    found = search(range(64), Poisoned(*{*range(64)} - good))

    assert set(found.results) == good
    assert given_up(found) == []


def test_the_search_goes_on_in_a_level_where_a_part_succeeds() -> None:
    """Although more than four fail: six of eight parts, then six of twelve."""
    bad = {request for request in range(64) if request < 48 and request % 8 == 7}

    found = search(range(64), Poisoned(*bad))

    assert set(found.culprits) == bad
    assert given_up(found) == []


def test_the_search_can_be_ended_at_any_time() -> None:
    found = search_among(range(8), ValueError())
    while found.part is not None and len(found.part) > 1:
        found.ran(failure(ValueError()) if 5 in found.part else [*map(str, found.part)])
    found.stop()

    assert list(found.part or ()) == [4]
    assert {4, 5} <= found.faults.keys() == {*range(8)} - found.results.keys()


def test_a_half_that_must_have_failed_is_not_run_again() -> None:
    """If the left half succeeds, the right one must fail."""
    run = Poisoned(3)

    search(range(4), run)

    assert run.calls == [[0, 1], [2], [3]]


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

        def run(part: Sequence[int]) -> FailedCall | list[str]:
            rows = [cost for at in part for cost in costs[at]]
            size = sizes.of(len(rows), rows)
            self.parts.append(tuple(part))
            failed = FailedCall(MemoryError(), rows=len(rows), size=size)
            return failed if size > room else [*map(str, part)]

        first = run([*requests])
        assume(isinstance(first, FailedCall))
        assert isinstance(first, FailedCall)
        search: Found = Search(requests, first, size=self.counting(sizes), limit=SizeLimit(known))
        while search.part is not None:
            self.limits.append(search.limit.most)
            search.ran(run(search.part))
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
    for part, limit in zip(searched.parts[1:], searched.limits, strict=True):
        assert len(part) == 1 or size(part) <= limit
    if known <= room and all(size(part) <= room for part in searched.parts[1:]):
        for part, following in itertools.pairwise(searched.parts[1:]):
            has_rows = any(costs[at] for at in part)  # without rows, a request may be alone
            assert not has_rows or size((*part, following[0])) > known


@given(st.integers(2, 8))
def test_the_cost_of_cutting_grows_with_the_number_of_requests(power: int) -> None:
    """Not with its square: a batch of small requests has thousands."""
    count = 2**power
    assert Searched([[1]] * count, CallSizes(), math.inf, count / 2).counted <= 4 * count
    assert Searched([[1]] * count, CallSizes(), 2, 2).counted <= 4 * count
