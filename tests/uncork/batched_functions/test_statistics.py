"""Statistics of a function, and the metrics of all."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork import BatchedCollector
from uncork.batched_functions import queues
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.errors import BatchTimedOut, RequestShed

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def _no_other_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other tests may still be alive."""
    monkeypatch.setattr(queues, "_tallies", {})
    for number in [*queues._live]:
        monkeypatch.delitem(queues._live, number)


def values(prefix: str = "uncork_") -> dict[tuple[str, ...], float]:
    """Scrape, and return the samples of this module's functions by name and values of labels."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(BatchedCollector())
    text = generate_latest(registry).decode()
    return {
        (sample.name.removeprefix(prefix), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def label_of(name: str) -> str:
    return f"{__name__}.{name}"


async def test_the_statistics_of_a_function() -> None:
    @batched(mb_max_latency=1e6)
    async def slow(items: list[int]) -> list[int]:
        await asyncio.sleep(1)
        return items

    assert slow.stats() == queues.BatchedStats(0, 0, 0, 0.0, 0, 0.0, 0.0, 1000.0)
    first = [asyncio.ensure_future(slow(item)) for item in range(3)]
    await asyncio.sleep(0.5)
    more = [asyncio.ensure_future(slow(item)) for item in range(2)]
    await asyncio.sleep(0.01)
    stats = slow.stats()
    assert (stats.queued, stats.running, stats.batches) == (2, 3, 0)
    await asyncio.gather(*first, *more)
    stats = slow.stats()
    assert (stats.queued, stats.running, stats.batches, stats.mean_size) == (0, 0, 2, 2.5)
    assert stats.intercept_s + 3 * stats.slope_s == pytest.approx(1, rel=0.1)


async def test_refused_calls() -> None:
    @batched(timeout=5)
    async def hang(items: list[int]) -> list[int]:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(10)
        return items

    with pytest.raises(BatchTimedOut):
        await hang(1)
    for _ in range(2):
        with pytest.raises(RequestShed):
            await hang(1)
    assert (hang.stats().refused, hang.stats().batches) == (2, 1)
    label = label_of("test_refused_calls.<locals>.hang")
    assert values()["shed_total", label, "no_worker"] == 2
    assert values()["batches_total", label, "timed_out"] == 1


async def test_durations_are_those_of_batches_that_ran_to_their_end() -> None:
    """As in the gateway's metrics: a timeout says nothing about the time that a batch takes."""

    @batched(timeout=5)
    async def hang(items: list[int]) -> list[int]:
        await asyncio.sleep(100)
        return items

    with pytest.raises(BatchTimedOut):
        await hang(1)
    label = label_of("test_durations_are_those_of_batches_that_ran_to_their_end.<locals>.hang")
    found = values()
    assert found["batches_total", label, "timed_out"] == 1
    assert found["batch_duration_seconds_count", label] == 0


class Model:
    @batched(mb_max_latency=500)
    async def embed(self, items: list[int]) -> list[int]:
        await asyncio.sleep(0.25)
        if len(items) > 3:
            raise MemoryError
        return items


async def test_a_scrape_has_the_metrics_of_all_functions() -> None:
    """Those of instances count together, and remain when an instance has ended."""
    models = [Model(), Model()]
    await asyncio.gather(*(model.embed(item) for model in models for item in range(2)))
    assert [model.embed.stats().batches for model in models] == [1, 1]
    del models[1:]
    gc.collect()
    await asyncio.gather(*(models[0].embed(item) for item in range(4)))

    label, found = label_of("Model.embed"), values()
    assert found["batches_total", label, "worked"] == 2
    assert found["batches_total", label, "failed"] == 1
    assert found["memory_failures_total", label] == 1
    assert found["batch_rows_count", label] == 3
    assert found["batch_rows_sum", label] == 8
    assert found["batch_rows_bucket", label, "2.0"] == 2
    assert found["batch_rows_bucket", label, "4.0"] == found["batch_rows_bucket", label, "+Inf"] == 3
    assert found["queue_wait_seconds_count", label] == found["request_duration_seconds_count", label] == 8
    assert found["request_duration_seconds_sum", label] == pytest.approx(4 * 0.25 + 4 * 0.75, rel=0.01)
    assert found["batch_duration_seconds_sum", label] == pytest.approx(2 * 0.25 + 0.75, rel=0.01)
    assert sum(value for (name, *_), value in found.items() if name == "releases_total") == 3
    assert found["goal_seconds", label] == 0.5
    assert found["queue_rows", label] == 0
    assert found["max_batch_rows", label] == 1000
    assert ("batch_limit", label) not in found
    assert found["estimate_intercept_seconds", label] >= 0
    assert ("estimate_slope_seconds", label) in found

    await asyncio.gather(*(models[0].embed(item) for item in range(4)))
    assert values()["batch_limit", label] == models[0].embed.stats().limit < 4


def test_functions_of_one_name_count_together() -> None:
    """Over all loops: two series with the same labels would make a scrape invalid."""

    def make() -> Any:
        @batched()
        async def same(items: list[int]) -> list[int]:
            return items

        return same

    functions = [make(), make()]

    async def main() -> None:
        for function in functions:
            await function(1)

    for _ in range(2):
        run(main(), loop_factory=VirtualLoop)
    label = label_of("test_functions_of_one_name_count_together.<locals>.make.<locals>.same")
    assert values()["batches_total", label, "worked"] == 4
    assert [function.stats().batches for function in functions] == [2, 2]
