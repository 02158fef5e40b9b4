"""Functions of the decorator that fail: whose error it is, and what is left in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.uncork.batched_functions.failing import Item, kept_of_failed, without_collector
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.errors import DispatchError, WorkerLost, WrongResultCount

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("surplus", [[], [1, 2]])
async def test_a_wrong_number_of_results_is_the_error_of_the_item_alone(surplus: list[int]) -> None:
    """The function is called again with fewer items, as after an exception."""

    @batched()
    async def wrong(items: list[int]) -> list[int]:
        return [result for item in items for result in (surplus if item == 2 else [item])]

    ends = await asyncio.gather(*map(wrong, [1, 2, 3, 4]), return_exceptions=True)

    assert [ends[0], *ends[2:]] == [1, 3, 4]
    assert isinstance(ends[1], WrongResultCount)


@pytest.mark.parametrize(
    "returned",
    [None, iter([1, 2]), {1: 1, 2: 2}, {1, 2}, "ab", b"ab", pd.DataFrame({"a": [1, 2], "b": [1, 2]})],
)
async def test_a_function_that_returns_no_list_leaves_nobody_waiting(returned: Any) -> None:
    """A forgotten ``return`` is the commonest case; the next call is executed."""

    @batched()
    async def forgetful(items: list[int]) -> list[int]:
        return items if 3 in items else returned

    calls = [asyncio.ensure_future(forgetful(item)) for item in (1, 2)]
    await asyncio.wait(calls, timeout=1.0)
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [TypeError] * 2
    assert str(ends[0]).startswith(f"the batch function returned {type(returned).__name__} ")
    assert await asyncio.wait_for(forgetful(3), 1.0) == 3


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), WorkerLost("of another dispatcher")])
async def test_what_the_function_raises_goes_to_its_callers(error: Exception) -> None:
    @batched()
    async def inverse(items: list[int]) -> list[float]:
        if 0 in items:
            raise error
        return [1 / item for item in items]

    with pytest.raises((ZeroDivisionError, DispatchError), match=str(error)):
        await inverse(0)
    assert await inverse(4) == 0.25


async def _fails(items: list[Item]) -> list[Item]:
    raise ValueError("bad")


async def _cancels(items: list[Item]) -> list[Item]:
    raise asyncio.CancelledError


async def _returns_too_few(items: list[Item]) -> list[Item]:
    return items[1:]


async def _returns_an_error(items: list[Item]) -> list[Exception]:
    return [ValueError("bad") for _ in items]


async def _takes_too_long(items: list[Item]) -> list[Item]:
    await asyncio.sleep(100)
    return items


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("function", [_fails, _cancels, _returns_too_few, _returns_an_error, _takes_too_long])
async def test_a_failed_batch_leaves_nothing_to_the_garbage_collector(
    function: Callable[[list[Item]], Any], count: int, idempotent: bool
) -> None:
    """The collector runs rarely in a server: memory would grow with failures."""
    call = batched(idempotent=idempotent, timeout=5)(function)
    with without_collector():
        kept = await kept_of_failed(call, count)
        await asyncio.sleep(1)

        assert [one() for one in kept] == [None] * count


class Private(BaseException):
    """Not an Exception."""


KINDS = [ValueError, asyncio.CancelledError, GeneratorExit, Private, StopAsyncIteration, MemoryError]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [{3}, {0, 7}, {0, 1, 2, 3, 4, 5, 6}, {0, 2, 4, 6, 8, 10}])
async def test_only_the_callers_of_the_items_at_fault_get_an_error(
    kind: type[BaseException], bad: set[int]
) -> None:
    """A caller cannot be given a cancellation, for example: it has not been cancelled."""

    @batched()
    async def pick(items: list[int]) -> list[int]:
        await asyncio.sleep(0.01)
        if bad & {*items}:
            raise kind("reason")
        return items

    ends = await asyncio.gather(*map(pick, range(12)), return_exceptions=True)

    for item, end in enumerate(ends):
        if item not in bad:
            assert end == item
        elif issubclass(kind, Exception):
            assert type(end) is kind
        else:
            assert isinstance(end, DispatchError)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_returned_exception_is_raised_for_its_caller(kind: type[BaseException]) -> None:
    calls = []

    @batched()
    async def pick(items: list[int]) -> list[Any]:
        calls.append(items)
        return [kind("odd") if item % 2 else item for item in items]

    ends = await asyncio.gather(*map(pick, range(4)), return_exceptions=True)

    assert ends[::2] == [0, 2]
    expected = kind if issubclass(kind, Exception) else DispatchError
    assert [type(end) for end in ends[1::2]] == [expected] * 2
    assert calls == [[0, 1, 2, 3]]


async def test_the_search_ends_before_the_timeout() -> None:
    """Items that have succeeded by then have results; the others get the exception of the first call."""

    @batched(timeout=10)
    async def slow(items: list[int]) -> list[int]:
        await asyncio.sleep(1.0)
        if {*items} & {1, 3, 5, 7, 9, 11}:
            raise ValueError(items)
        return items

    ends = await asyncio.gather(*map(slow, range(32)), return_exceptions=True)

    assert ends[16:] == list(range(16, 32))
    assert {type(end) for end in ends[:12]} <= {int, ValueError}
    assert asyncio.get_running_loop().time() < 10
