"""Batches that do not fit into memory run in smaller parts, and the size that fits is learned."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork.batched_functions.batch_run import BatchRun
from uncork.batched_functions.decorator import batched
from uncork_dispatcher import ApiRules
from uncork_dispatcher.errors import BatchTimedOut
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.costs import Extent

pytestmark = pytest.mark.virtual_time


class Memory:
    """A function of a list whose calls need a unit of memory for each item."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.sizes: list[int] = []

    async def call(self, items: list[int]) -> list[int]:
        self.sizes.append(len(items))
        await asyncio.sleep(0.01)
        if len(items) > self.fits:
            raise MemoryError
        return items


async def rounds(call: Any, number: int, calls: int = 64) -> None:
    for _ in range(number):
        assert await asyncio.gather(*map(call, range(calls))) == [*range(calls)]


async def test_every_caller_has_a_result_and_later_batches_fit(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory(20)
    call = batched(mb_max_latency=1e6)(memory.call)

    with caplog.at_level(logging.WARNING, "uncork.batched"):
        await rounds(call, 8)
    assert call.stats().limit <= 20
    del memory.sizes[:]
    await rounds(call, 2)

    assert max(memory.sizes) <= 20
    assert "larger batches do not fit into memory; batches have at most" in caplog.text


async def test_the_limit_rises_when_there_is_more_memory() -> None:
    memory = Memory(8)
    call = batched(mb_max_latency=1e6)(memory.call)
    await rounds(call, 3)
    assert call.stats().limit <= 8

    memory.fits = 64
    await rounds(call, 60)
    assert max(memory.sizes[-40:]) > 16


async def test_what_is_not_idempotent_runs_once_and_is_limited() -> None:
    memory = Memory(4)
    call = batched(idempotent=False, mb_max_latency=1e6)(memory.call)

    for _ in range(2):  # the first may have had a large item
        ends = await asyncio.gather(*map(call, range(16)), return_exceptions=True)
        assert {type(end) for end in ends} == {MemoryError}
    assert memory.sizes == [16, 16]
    assert call.stats().limit < 16


async def test_the_limit_counts_cost() -> None:
    costs: list[float] = []

    @batched(cost=lambda text: len(text), mb_max_latency=1e6)
    async def call(texts: list[str]) -> list[str]:
        await asyncio.sleep(0.01)
        costs.append(sum(map(len, texts)))
        if costs[-1] > 60:
            raise MemoryError
        return texts

    texts = ["x" * 8] * 32
    for _ in range(8):
        assert await asyncio.gather(*map(call, texts)) == texts
    assert max(costs[-3:]) <= call.stats().limit <= 60


async def test_the_limit_outlasts_a_batch_past_its_timeout() -> None:
    memory = Memory(8)
    call = batched(mb_max_latency=1e6, timeout=5)(memory.call)
    await rounds(call, 3)
    limit = call.stats().limit

    async def hang(items: list[int]) -> list[int]:
        await asyncio.sleep(100)
        return items

    normal = call._definition.function
    object.__setattr__(call, "_function", hang)
    with pytest.raises(BatchTimedOut):
        await call(1)
    object.__setattr__(call, "_function", normal)
    await asyncio.sleep(1)
    del memory.sizes[:]
    await rounds(call, 1)
    assert max(memory.sizes) <= limit


class Block:
    """Memory that a failed call has allocated."""


async def test_what_a_failed_call_has_allocated_is_free_when_its_parts_run() -> None:
    blocks: list[weakref.ref[Block]] = []

    @batched()
    async def call(items: list[int]) -> list[int]:
        assert [block() for block in blocks] == [None] * len(blocks)
        block = Block()
        blocks.append(weakref.ref(block))
        if len(items) > 2:
            raise MemoryError
        return items

    gc.disable()
    try:
        assert await asyncio.gather(*map(call, range(8))) == [*range(8)]
    finally:
        gc.enable()
    assert len(blocks) >= 5


@given(
    items=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    fits=st.integers(1, 12),
    bad=st.sets(st.integers(0, 9), max_size=3),
)
def test_each_caller_has_what_the_item_gives_alone(items: list[int], fits: int, bad: set[int]) -> None:
    """Whatever else is in its batch: items at fault, or too many to fit."""

    async def main() -> None:
        @batched(mb_max_latency=1e6)
        async def call(items: list[int]) -> list[int]:
            await asyncio.sleep(0.001)
            if len(items) > fits:
                raise MemoryError
            if bad & {*items}:
                raise ValueError("bad")
            return items

        ends = await asyncio.gather(*map(call, items), return_exceptions=True)
        for item, end in zip(items, ends, strict=True):
            assert isinstance(end, ValueError) if item in bad else end == item

    run(main(), loop_factory=VirtualLoop)


async def test_an_item_too_large_among_other_faults_limits_nobody() -> None:
    """The search for the item at fault finds it; its neighbours are not suspected the next time."""

    @batched(mb_max_latency=1e6)
    async def call(items: list[int]) -> list[int]:
        if 0 in items:
            raise ValueError("zero")
        if 5 in items:
            raise MemoryError("five")
        return items

    for _ in range(4):
        ends = await asyncio.gather(*map(call, range(8)), return_exceptions=True)
        assert [type(end) for end in ends] == [ValueError, int, int, int, int, MemoryError, int, int]
    assert call.stats().limit == 1000


@pytest.mark.parametrize(("pads", "most"), [(True, 25), (False, 11)])
async def test_the_size_of_a_call_counts_padding(pads: bool, most: float) -> None:
    """Three items of 1 and one of 10 run out of memory together; halves of them do not."""

    async def call(part: Sequence[int]) -> Any:
        return MemoryError() if len(part) == 4 else [*part]

    limit = SizeLimit()
    for _ in range(2):
        run = BatchRun(
            call,
            rules=ApiRules(name="call"),
            extents=[Extent(1, cost, cost) for cost in (1, 1, 1, 10)],
            pads=pads,
            limit=limit,
            clock=asyncio.get_running_loop().time,
        )
        assert (await run.run()).results == [0, 1, 2, 3]
        assert run.memory_failures == 1
    assert limit.most == most


async def test_a_limit_in_another_unit_is_forgotten() -> None:
    memory = Memory(100)
    call = batched()(memory.call)
    limit = call._queues.here().limit
    limit.become(SizeLimit(5))
    limit.pads = True
    await call(1)
    assert call.stats().limit == 1000
