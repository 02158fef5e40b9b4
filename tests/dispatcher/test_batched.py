"""The dispatcher behind a decorator."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork_dispatcher.batched import batched
from uncork_dispatcher.errors import BatchTimedOut, DispatchError, RequestShed, WorkerLost, WrongResultCount

pytestmark = pytest.mark.virtual_time


class Squares:
    """A function of a list that takes a virtual second, and remembers what it was given."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []
        self.running = self.most_running = 0

    async def __call__(self, items: list[int]) -> list[int]:
        """Square each."""
        self.lists.append(items)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(1.0)
        self.running -= 1
        return [item * item for item in items]


async def test_concurrent_calls_share_a_batch() -> None:
    squares = Squares()

    @batched()
    async def square(items: list[int]) -> list[int]:
        return await squares(items)

    assert await asyncio.gather(*(square(i) for i in range(10))) == [i * i for i in range(10)]
    assert squares.lists == [list(range(10))]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_as_many_run_at_a_time_as_asked_for(concurrency: int) -> None:
    """And no batch is larger than asked for."""
    squares = Squares()

    @batched(concurrency=concurrency, mb_max_batch_size=2, mb_max_latency=1e6)
    async def square(items: list[int]) -> list[int]:
        return await squares(items)

    assert await asyncio.gather(*(square(i) for i in range(20))) == [i * i for i in range(20)]
    assert squares.most_running == concurrency
    assert {len(items) for items in squares.lists} == {2}


async def test_the_policy_is_that_asked_for() -> None:
    """No batching: every item alone."""
    squares = Squares()

    @batched(policy="none", concurrency=4)
    async def square(items: list[int]) -> list[int]:
        return await squares(items)

    await asyncio.gather(*(square(i) for i in range(4)))

    assert squares.lists == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, got 0"),
        ({"mb_max_latency": 0}, "goal_s must be positive"),
        ({"mb_max_batch_size": 0}, "max_batch_rows must be positive"),
        ({"timeout": -1}, "timeout_s must be positive"),
        ({"policy": "clever"}, "unknown policy 'clever'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    async def square(items: list[int]) -> list[int]:
        return items

    with pytest.raises(ValueError, match=message):
        batched(**arguments)(square)


def plain(items: list[int]) -> list[int]:
    """Not async."""
    return items


async def generator(items: list[int]) -> Any:
    """Async, but nothing that can be awaited."""
    yield items


@pytest.mark.parametrize("function", [plain, generator])
def test_only_async_functions_are_taken(function: Callable[..., Any]) -> None:
    with pytest.raises(
        TypeError, match=f"must decorate an async function, got <function {function.__name__}"
    ):
        batched()(function)


def test_the_function_keeps_its_name_and_words() -> None:
    """As every decorator should."""

    @batched()
    async def square(items: list[int]) -> list[int]:
        """Square each."""
        return items

    assert (square.__name__, square.__doc__) == ("square", "Square each.")


async def test_a_wrong_number_of_results_is_told() -> None:
    @batched()
    async def first(items: list[int]) -> list[int]:
        return items[:1]

    ends = await asyncio.gather(first(1), first(2), return_exceptions=True)
    assert [type(end) for end in ends] == [WrongResultCount] * 2


@pytest.mark.parametrize("returned", [None, iter([1, 2]), {1: 1, 2: 2}, {1, 2}])
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


async def test_a_call_past_its_timeout_is_cancelled() -> None:
    cancelled = []

    @batched(timeout=5)
    async def sleep(items: list[float]) -> list[float]:
        try:
            await asyncio.sleep(items[0])
        except asyncio.CancelledError:
            cancelled.append(items)
            raise
        return items

    with pytest.raises(BatchTimedOut):
        await sleep(1000.0)
    await asyncio.sleep(0)
    assert cancelled == [[1000.0]]
    assert await sleep(1.0) == 1.0


async def test_a_call_that_turns_its_cancellation_into_an_error_keeps_the_slot() -> None:
    @batched(timeout=5)
    async def sleep(items: list[float]) -> list[float]:
        try:
            await asyncio.sleep(items[0])
        except asyncio.CancelledError:
            raise OSError("the connection broke while it was closed") from None
        return items

    with pytest.raises(BatchTimedOut):
        await sleep(1000.0)
    await asyncio.sleep(1.0)
    assert await sleep(1.0) == 1.0


async def test_the_goal_is_given_in_milliseconds() -> None:
    """The only slot never ends: queued requests are shed at the goal, after 10 s."""

    @batched(timeout=5, mb_max_latency=10_000)
    async def sleep(items: list[float]) -> list[float]:
        try:
            await asyncio.sleep(items[0])
        except asyncio.CancelledError:
            await asyncio.sleep(100.0)
        return items

    callers = [asyncio.ensure_future(sleep(1000.0))]
    await asyncio.sleep(0.5)
    callers.append(asyncio.ensure_future(sleep(1.0)))
    first, second = await asyncio.gather(*callers, return_exceptions=True)

    assert isinstance(first, BatchTimedOut)
    assert isinstance(second, RequestShed)
    assert asyncio.get_running_loop().time() == pytest.approx(10, abs=1.0)


async def test_a_slot_is_not_used_before_the_cancelled_call_is_over() -> None:
    """One that cleans up for a while still runs: a caller meanwhile finds no worker."""
    running = 0

    @batched(timeout=5)
    async def sleep(items: list[float]) -> list[float]:
        nonlocal running
        running += 1
        assert running == 1
        try:
            await asyncio.sleep(items[0])
        except asyncio.CancelledError:
            await asyncio.sleep(3.0)
            raise
        finally:
            running -= 1
        return items

    with pytest.raises(BatchTimedOut):
        await sleep(1000.0)
    with pytest.raises(RequestShed, match="no_worker"):
        await sleep(1.0)
    await asyncio.sleep(4.0)
    assert await sleep(1.0) == 1.0


async def test_a_caller_that_leaves_disturbs_nobody() -> None:
    squares = Squares()

    @batched()
    async def square(items: list[int]) -> list[int]:
        return await squares(items)

    callers = [asyncio.ensure_future(square(i)) for i in range(3)]
    await asyncio.sleep(0.5)
    callers[1].cancel()
    first, second, third = await asyncio.gather(*callers, return_exceptions=True)
    assert (first, third) == (0, 4)
    assert isinstance(second, asyncio.CancelledError)


def test_one_event_loop_after_another() -> None:
    """Each has its own queues, and nothing is kept of the first when it is closed."""
    squares = Squares()

    @batched()
    async def square(items: list[int]) -> list[int]:
        return await squares(items)

    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert list(await asyncio.gather(square(2), square(3))) == [4, 9]
        return weakref.ref(asyncio.get_running_loop())

    first = run(main(), loop_factory=VirtualLoop)
    run(main(), loop_factory=VirtualLoop)
    gc.collect()

    assert squares.lists == [[2, 3], [2, 3]]
    assert first() is None
