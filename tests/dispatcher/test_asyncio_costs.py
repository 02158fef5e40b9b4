"""The asyncio shell when requests cost something other than their rows, and who sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from tests.dispatcher.batches import costs_of, rows_of
from tests.dispatcher.shell import Log, Workers, dispatcher
from tests.dispatcher.wrapped_core import note_sources
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.requests.batch import Batch

pytestmark = pytest.mark.virtual_time


class RowsLog(Log):
    """Notes the rows of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def batch_started(self, batch: Batch[Any]) -> None:
        self.rows.append(batch.count)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[Hashable]:
    """Yield the sources that the core gets, in order."""
    return note_sources(monkeypatch, "uncork_dispatcher.asyncio_dispatcher")


async def test_the_core_counts_cost_and_everybody_else_rows() -> None:
    workers, log = Workers(), RowsLog()
    shell = dispatcher(workers, observer=log)
    answers = await asyncio.gather(
        shell.call("a", "x", rows=2, cost=70.5),
        shell.call("a", "y", cost=8),
        shell.call("a", "z", rows=3),
    )

    [job] = workers.jobs
    assert (rows_of(job), costs_of(job), job.rows) == ([2, 1, 3], [70.5, 8, 3], 81.5)
    assert {answer.batch.count for answer in answers} == {6}
    assert log.rows == [6]


async def test_the_core_is_told_who_asks(sources: list[Hashable]) -> None:
    shell = dispatcher(Workers())
    await asyncio.gather(shell.call("a", "x", source=("host", 1)), shell.call("a", "y"))

    assert sources == [("host", 1), None]


@batched()
async def same(items: list[int]) -> list[int]:
    return items


async def test_a_task_that_calls_again_is_the_same_source(sources: list[Hashable]) -> None:
    """It is a client that waits for its answer before it asks again; others are other clients."""

    async def client() -> None:
        for item in range(3):
            await same(item)

    await asyncio.gather(client(), client())

    assert sorted(sources, key=str) == [1, 1, 1, 2, 2, 2]


async def test_a_new_task_is_a_new_source(sources: list[Hashable]) -> None:
    """Also where it lies in memory where one that has ended lay."""
    for item in range(50):
        await asyncio.ensure_future(same(item))

    assert len(set(sources)) == 50
