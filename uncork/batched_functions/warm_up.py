"""Warm up a batched function with an example, as workers do with their services."""

from __future__ import annotations

import asyncio

from uncork.batched_functions.loop_queue import Item, LoopQueue
from uncork.batched_functions.outcomes import Failed
from uncork_workers.process.batches.failures import is_out_of_memory
from uncork_workers.process.batches.size_limit import RUNS_PER_SIZE, SizeLimit, WarmUpSizes, doubling


async def warm_up(queue: LoopQueue, item: Item, *, cost: float | None, seconds: float) -> None:
    """Run growing batches of an item, and teach the queue their times and the size that fits into memory.

    Raises:
        Exception: of the function.
    """
    clock = asyncio.get_running_loop().time
    ends, each = clock() + seconds, cost or 1.0
    most = 1 if queue.rules.policy == "none" else max(1, int(queue.rules.max_batch_rows // each))
    sizes = WarmUpSizes(doubling(most))
    chunks: list[tuple[float, float]] = []
    while (size := sizes.next(ends - clock())) is not None:
        try:
            took_s = [await _run(queue, [item] * size) for _ in range(RUNS_PER_SIZE)]
        except Exception as error:
            if not sizes.ran or not is_out_of_memory(error):
                raise
            sizes.too_large = size
        else:
            sizes.worked(size, min(took_s))
            chunks.append((size * each, min(took_s)))
        if sizes.too_large:
            queue.limit.become(SizeLimit(sizes.ran[-1] * each))
            queue.set_limit()
    queue.learn(chunks)


async def _run(queue: LoopQueue, items: list[Item]) -> float:
    """Return the seconds of a call."""
    outcome, took_s = await queue.try_alone(items)
    failed = (
        [one.error for one in outcome if isinstance(one, Failed)] if isinstance(outcome, list) else [outcome]
    )
    if not failed:
        return took_s
    try:
        raise failed[0]
    finally:
        del outcome, failed  # else the traceback refers to the exception
