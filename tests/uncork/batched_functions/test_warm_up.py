"""A warm-up runs growing batches of an example, and teaches the estimate and the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from uncork.batched_functions.decorator import batched
from uncork_workers.wire.values import DefinitionError

pytestmark = pytest.mark.virtual_time


class Timed:
    """A function of lists that takes 10 ms, and 1 ms for each item."""

    def __init__(self, fits: float = 1e9) -> None:
        self.fits = fits
        self.sizes: list[int] = []
        self.items: list[Any] = []

    async def call(self, items: list[Any]) -> list[Any]:
        self.sizes.append(len(items))
        self.items += items
        await asyncio.sleep(0.010 + 0.001 * len(items))
        if len(items) > self.fits:
            raise MemoryError
        return items


async def test_sizes_double_up_to_the_largest_batch_and_teach_the_estimate() -> None:
    timed = Timed()
    call = batched(mb_max_batch_size=20, warmup={"a": 1})(timed.call)

    await call.warm_up()

    assert timed.sizes == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 20, 20]
    assert timed.items[0] == {"a": 1}
    stats = call.stats()
    assert (stats.intercept_s, stats.slope_s) == pytest.approx((0.010, 0.001), rel=0.05)
    assert stats.batches == 0


async def test_a_larger_size_needs_time() -> None:
    timed = Timed()
    call = batched(warmup=1)(timed.call)

    await call.warm_up(seconds=0.2)

    assert timed.sizes == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16]


@pytest.mark.parametrize(("policy", "cost", "most"), [("none", None, 1), ("cork", lambda item: 30, 3)])
async def test_the_largest_size_is_that_of_a_batch(policy: str, cost: Any, most: int) -> None:
    timed = Timed()
    call = batched(mb_max_batch_size=100, policy=policy, cost=cost, warmup=1)(timed.call)

    await call.warm_up()

    assert timed.sizes[-1] == most


async def test_a_size_that_does_not_fit_limits_batches() -> None:
    timed = Timed(fits=11)
    call = batched(mb_max_latency=1e6, warmup=1)(timed.call)

    await call.warm_up()
    assert call.stats().limit in (10, 11)

    del timed.sizes[:]
    await asyncio.gather(*map(call, range(40)))
    assert max(timed.sizes) <= 11


@pytest.mark.parametrize("example", [("q", "t"), {"text": "t", "query": "q"}])
async def test_several_arguments(example: Any) -> None:
    calls: list[Any] = []

    class Ranker:
        @batched(mb_max_batch_size=2, warmup=example)
        async def rank(self, query: list[str], text: list[str], top: Any = 3) -> list[int]:
            calls.append((query, text, top))
            return [1] * len(query)

    await Ranker().rank.warm_up()

    assert calls[-1] == (["q", "q"], ["t", "t"], [3, 3])


async def test_errors_are_the_callers() -> None:
    @batched(warmup=("a",))
    async def rank(query: list[str], text: list[str]) -> list[str]:
        return query

    with pytest.raises(TypeError, match=r"rank\(\) missing a required argument: 'text'"):
        await rank.warm_up()

    for raises in (True, False):

        @batched(warmup=1)
        async def fail(items: list[int]) -> list[Any]:
            if raises:  # noqa: B023
                raise ValueError("bad")
            return [ValueError("bad") for _ in items]

        with pytest.raises(ValueError, match="bad"):
            await fail.warm_up()

    @batched()
    async def none(items: list[int]) -> list[int]:
        return items

    with pytest.raises(DefinitionError, match="none has no example to warm up with; set warmup"):
        await none.warm_up()


async def test_even_one_item_must_fit() -> None:
    timed = Timed(fits=0)
    with pytest.raises(MemoryError):
        await batched(warmup=1)(timed.call).warm_up()


async def test_calls_take_turns_with_the_warm_up() -> None:
    running: list[int] = []

    @batched(warmup=0, mb_max_batch_size=8)
    async def call(items: list[int]) -> list[int]:
        running.append(1)
        assert len(running) == 1
        await asyncio.sleep(0.1)
        running.clear()
        return items

    warming = asyncio.ensure_future(call.warm_up())
    await asyncio.sleep(0.05)
    assert await asyncio.gather(*map(call, range(4))) == [*range(4)]
    assert not warming.done()
    await warming


async def test_a_function_that_warms_itself_up_does_not_wait_for_its_own_end() -> None:
    """Neither in a batch nor in a warm-up, which hold the only slot."""

    @batched(warmup=1)
    async def call(items: list[int]) -> list[int]:
        await call.warm_up()
        return items

    starts: list[Callable[[], Any]] = [lambda: call(1), call.warm_up]
    for start in starts:
        with pytest.raises(RuntimeError, match="call calls itself and would wait for its own end"):
            await start()
