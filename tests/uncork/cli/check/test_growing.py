"""Batches that grow: when they stop, what they tell, and what of memory."""

from __future__ import annotations

import asyncio
import math
import mmap
import os
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from uncork.cli.check.figures import Failure, Times
from uncork.cli.check.growing import (
    Batches,
    Died,
    Failed,
    Refused,
    Unknown,
    grow,
    growth_per_row,
    of_profile,
    peak_bytes,
    reset_peak,
)
from uncork_gateway.backends.worker_connection import Executed
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.process.warmup import Example
from uncork_workers.wire.messages import Batch, ExceptionReport, Reply
from uncork_workers.wire.schema import ApiSettings

RAISED = ExceptionReport("IndexError", "service.py:7", "list index out\nof range")


class Model:
    """Takes 2 ms and 1 ms a row, as it says, and 9 ms more for the first batch of a size.

    Refuses batches of more rows than it likes, and raises on those of more than it can. Those of more than
    fit run in smaller calls, from the second on as the worker has learned.
    """

    def __init__(
        self,
        *,
        likes: int = 1000,
        can: int = 1000,
        fits: int = 1000,
        knows: bool = False,
        hangs: bool = False,
    ) -> None:
        self.likes = likes
        self.fits = fits
        self.knows = knows
        self.can = can
        self.hangs = hangs
        self.sizes: list[int] = []

    async def run(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        if self.hangs:
            await asyncio.Event().wait()
        rows = len(bodies)
        seconds = (2 + rows + (0 if rows in self.sizes else 9)) / 1000
        self.sizes.append(rows)
        status = 200 if rows <= self.likes else 422
        raised = [] if rows <= self.can else [RAISED]
        if raised and rows == 1:
            status = 500
        reply = Reply(0, not raised, seconds, [status] * rows, [], [], exceptions=raised)
        if rows > self.fits or self.knows:
            limit = float(self.fits) if self.knows else None
            failures = 0 if self.knows else 1
            errors = [] if self.knows else [RAISED]
            reply = replace(reply, limit=limit, memory_failures=failures, exceptions=errors)
        return Executed(reply, [b"no"] * rows), seconds + 0.5


def grown(model: Model, **options: Any) -> Times:
    times, failure = tried(model, **options)
    assert failure is None
    return times


def tried(
    model: Model, *, seconds: float = 60.0, free_bytes: int | None = None, **settings: Any
) -> tuple[Times, Failure | None]:
    example = Example(api="predict", sample=Sample(b"[1,2]"), settings=ApiSettings(**settings))
    batches = Batches(example, model.run)
    return asyncio.run(grow(batches, seconds=seconds, pid=os.getpid(), free_bytes=free_bytes))


@pytest.mark.parametrize("knows", [False, True])
def test_it_stops_at_the_size_that_fits_into_memory(knows: bool) -> None:
    """Whether the batch shows that, or the warm-up has shown it."""
    times = grown(Model(fits=28, knows=knows))

    assert [size.rows for size in times.sizes] == [1, 2, 4, 8, 16]
    assert times.fits == (28 if knows else 16)


def test_a_size_that_fails_after_a_shortage_ends_the_search_for_what_fits() -> None:
    """The sizes before it stay measured."""
    model = Model(fits=4)

    async def run(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        executed, seconds = await model.run(batch, bodies)
        if model.sizes.count(8) > 1:
            raise Died
        return executed, seconds

    example = Example(api="predict", sample=Sample(b"[1,2]"), settings=ApiSettings())
    growing = grow(Batches(example, run), seconds=60.0, pid=os.getpid(), free_bytes=None)
    times, failure = asyncio.run(growing)

    assert ([size.rows for size in times.sizes], times.fits, failure) == ([1, 2, 4], 4, None)


def test_a_smallest_size_that_does_not_fit_is_a_failure() -> None:
    with pytest.raises(Failed, match=r"^runs out of memory$"):
        grown(Model(fits=0))


def test_without_a_shortage_everything_fits() -> None:
    assert grown(Model()).fits == math.inf


def test_sizes_double_up_to_the_cap() -> None:
    """The first of each does not count; the line is through the others."""
    model = Model()
    times = grown(model, mb_max_batch_size=12)

    assert [(one.rows, one.median_ms) for one in times.sizes] == [(1, 3), (2, 4), (4, 6), (8, 10), (12, 14)]
    assert list(times.sizes[0].times_ms) == [3, 3]
    assert model.sizes == [rows for rows in (1, 2, 4, 8, 12) for _ in range(3)]
    assert times.batch_ms(100) == pytest.approx(602, abs=1)
    assert times.smallest_ms == pytest.approx(503)
    assert times.row_bytes == 5


def test_sizes_are_in_cost_where_there_is_one() -> None:
    times = grown(Model(), cost=2.0, mb_max_batch_size=9)

    assert [one.rows for one in times.sizes] == [2, 4, 8]


@pytest.mark.parametrize(("cost", "sizes"), [(2.0, [8, 16, 32]), (20.0, [16, 32])])
def test_sizes_are_in_cost_as_the_model_pads_or_truncates_it(cost: float, sizes: list[int]) -> None:
    """So is the limit that the worker has learned."""
    settings = {"cost": cost, "allowed_lengths": (8.0, 16.0), "mb_max_batch_size": 32}
    assert [one.rows for one in grown(Model(), **settings).sizes] == sizes
    assert grown(Model(fits=16, knows=True), **settings).fits == 16


def test_what_is_run_one_by_one_is_measured_all_the_same() -> None:
    """The report says what merging would gain."""
    assert [one.rows for one in grown(Model(), policy="none", mb_max_batch_size=4).sizes] == [1, 2, 4]


def test_time_and_memory_end_it() -> None:
    assert len(grown(Model(), seconds=0).sizes) == 1
    assert len(grown(Model(), free_bytes=-1).sizes) == 1


def test_a_size_that_fails_ends_it() -> None:
    """The smallest one says why."""
    assert [one.rows for one in grown(Model(likes=4)).sizes] == [1, 2, 4]
    with pytest.raises(Refused, match=r"^status 422: no$"):
        grown(Model(likes=0))
    with pytest.raises(TimeoutError):
        grown(Model(hangs=True), timeout=0.001)


def test_the_worker_may_take_the_timeout_of_the_api() -> None:
    """It ends batches of APIs with concurrency itself."""
    model = Model()
    timeouts: list[float] = []

    async def run(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        timeouts.append(batch.timeout_s)
        return await model.run(batch, bodies)

    example = Example(api="predict", sample=Sample(b"1"), settings=ApiSettings(timeout=300))
    asyncio.run(Batches(example, run).once(1))
    assert timeouts == [300]


def test_a_handler_that_raises_has_failed() -> None:
    with pytest.raises(Failed, match=r"^raises IndexError: list index out of range \(service.py:7\)$"):
        tried(Model(can=0))


def test_a_handler_that_raises_in_larger_batches_has_failed_too() -> None:
    """Though each of their requests is answered when it is run alone; the sizes before it were measured."""
    times, failure = tried(Model(can=2))

    assert [one.rows for one in times.sizes] == [1, 2]
    assert failure == Failure(rows=4, says="raises IndexError: list index out of range (service.py:7)")


def test_an_answer_that_is_an_error_is_a_failure() -> None:
    """Whatever the handler calls it; a refusal is none."""

    async def unavailable(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        return Executed(Reply(0, True, 0.1, [503], [], []), [b"no database"]), 0.1

    async def dies(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        raise Died

    for run, says in (
        (unavailable, "returns status 503: no database"),
        (dies, "kills the worker process"),
    ):
        batches = Batches(Example(api="a", sample=Sample(b"1"), settings=ApiSettings()), run)
        with pytest.raises(Failed, match=f"^{says}$"):
            asyncio.run(grow(batches, seconds=1, pid=os.getpid(), free_bytes=None))


def test_a_profile_is_as_good() -> None:
    times = of_profile([(2.0, 0.012), (1.0, 0.011), (4.0, 0.014)])

    assert times.batch_ms(3) == pytest.approx(13)
    assert times.memory_per_row_bytes is None
    with pytest.raises(Unknown, match="the API has no example, and none can be generated"):
        of_profile([])


def test_memory_grows_by_a_line_or_not_at_all() -> None:
    """A few MiB are what the allocator happens to do."""
    mib = 2**20
    assert growth_per_row([(1, 100 * mib), (10, 110 * mib), (20, 120 * mib)]) == pytest.approx(mib, rel=0.1)
    assert growth_per_row([(1, 100 * mib), (10, 101 * mib), (20, 102 * mib)]) is None
    assert growth_per_row([(1, 100 * mib), (20, 120 * mib)]) is None


def test_the_peak_is_that_since_it_was_forgotten() -> None:
    """Of this process; a block is mapped and given back. Of other memory, Python may keep some."""
    with mmap.mmap(-1, 64 * 2**20) as block:
        block.write(b"x" * len(block))
        high = peak_bytes(os.getpid())
    reset_peak(os.getpid())
    low = peak_bytes(os.getpid())

    assert high is not None
    assert low is not None
    assert high - low > 32 * 2**20
    assert peak_bytes(2**30) is None
