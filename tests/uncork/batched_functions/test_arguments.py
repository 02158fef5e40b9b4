"""The arguments of a call become one list for each parameter; cost, group and class see them too."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork.batched_functions.decorator import batched
from uncork_dispatcher import Batch
from uncork_workers.wire.costs import rounded_cost
from uncork_workers.wire.values import DefinitionError

pytestmark = pytest.mark.virtual_time


async def test_each_parameter_has_a_list() -> None:
    """In the order of the signature, whatever the order of the call, with defaults where it has none."""
    lists: list[Any] = []

    @batched()
    async def rank(query: list[str], text: list[str], top: Any = 5, *, lang: Any = "en") -> list[str]:
        lists.append((query, text, top, lang))
        return [f"{one}:{other}" for one, other in zip(query, text, strict=True)]

    calls = (
        rank("q", "a"),
        rank(text="b", query="r"),
        rank("s", "c", 7, lang="de"),
        rank("t", text="d", top=1),
    )

    with pytest.raises(TypeError, match="too many positional arguments"):
        await rank("q", "a", 3, "de")
    assert list(await asyncio.gather(*calls)) == ["q:a", "r:b", "s:c", "t:d"]
    assert lists == [(["q", "r", "s", "t"], ["a", "b", "c", "d"], [5, 5, 7, 1], ["en", "en", "de", "en"])]


async def test_positional_only_parameters_and_partial_functions() -> None:
    from functools import partial

    @batched()
    async def difference(a: list[int], b: list[int], /) -> list[int]:
        return [one - other for one, other in zip(a, b, strict=True)]

    async def scaled(factor: int, items: list[int]) -> list[int]:
        return [factor * item for item in items]

    assert await difference(5, 3) == 2
    assert await batched()(partial(scaled, 3))(2) == 6


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda rank: rank("q"), r"rank\(\) missing a required argument: 'text'"),
        (lambda rank: rank("q", "t", 3), r"rank\(\) too many positional arguments"),
        (lambda rank: rank("q", "t", color=3), r"rank\(\) got an unexpected keyword argument 'color'"),
        (lambda rank: rank("q", "t", query="r"), r"rank\(\) multiple values for argument 'query'"),
    ],
)
async def test_arguments_that_do_not_fit_are_the_callers_error(call: Callable[[Any], Any], says: str) -> None:
    calls: list[list[str]] = []

    @batched()
    async def rank(query: list[str], text: list[str]) -> list[str]:
        calls.append(text)
        return text

    ends: Any = await asyncio.gather(call(rank), rank("q", "t"), return_exceptions=True)

    with pytest.raises(TypeError, match=says):
        raise ends[0]
    assert (ends[1], calls) == ("t", [["t"]])


@pytest.mark.parametrize("argument", ["cost", "group_by", "class_of"])
def test_functions_of_an_item_are_not_async(argument: str) -> None:
    """Their coroutines would be groups: each call of the function would have one item."""

    async def kind(item: int) -> str:
        return "a"

    classes = {"a": 1, "b": 2} if argument == "class_of" else None
    with pytest.raises(DefinitionError, match=f"{argument} must be a plain function, not async, got <func"):
        batched(**{argument: kind, "classes": classes})  # type: ignore[arg-type]


def test_signatures_without_lists_are_refused() -> None:
    async def any_number(*texts: list[str], **more: list[str]) -> list[str]:
        return []

    async def nothing() -> list[str]:
        return []

    with pytest.raises(
        TypeError, match=r"any_number must name its parameters, .* got \*texts.* and \*\*more"
    ):
        batched()(any_number)
    with pytest.raises(
        TypeError, match=r"min has no signature that names its parameters; decorate a function that calls it"
    ):
        batched()(min)
    with pytest.raises(TypeError, match=r"nothing must have a parameter for the list of items, got \(\)"):
        batched()(nothing)


rows = st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans())


@given(st.lists(rows, min_size=1, max_size=40), st.sets(st.integers(0, 9), max_size=4))
def test_callers_get_their_own_results_whatever_is_merged(
    calls: list[tuple[int, int, bool]], bad: set[int]
) -> None:
    """Those of bad items get an error; the others what they would get alone."""

    async def main() -> None:
        @batched(mb_max_batch_size=7, group_by=lambda a, b: b, cost=lambda a, b: 1 + b / 2)
        async def combine(a: list[int], b: list[int]) -> list[tuple[int, int]]:
            await asyncio.sleep(0.01)
            assert len(set(b)) == 1
            if bad & {*a}:
                raise ValueError("bad")
            return list(zip(a, b, strict=True))

        ends = await asyncio.gather(
            *(combine(a, b=b) if by_name else combine(a, b) for a, b, by_name in calls),  # type: ignore[call-arg]
            return_exceptions=True,
        )
        for (a, b, _), end in zip(calls, ends, strict=True):
            assert isinstance(end, ValueError) if a in bad else end == (a, b)

    run(main(), loop_factory=VirtualLoop)


async def test_the_costs_reach_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the length of a row, so it learns whether the function pads."""
    batches: list[Batch[Any]] = []

    @batched(cost=lambda text, weight: np.float32(weight))
    async def echo(texts: list[str], weight: list[float]) -> list[str]:
        return texts

    queue = echo._queues.here()
    execute = queue._run

    def run_batch(batch: Batch[Any]) -> Any:
        batches.append(batch)
        return execute(batch)

    monkeypatch.setattr(queue._dispatcher._runner, "_execute", run_batch)
    await asyncio.gather(echo("a", 1.5), echo("b", 1.5625))

    [batch] = batches
    assert [one.cost for one in batch.requests] == [1.5, 1.5625]
    assert (batch.rows, batch.padded, batch.count) == (3.0625, 3.125, 2)
    await echo("c", 0.1)
    assert [one.cost for one in batches[1].requests] == [rounded_cost(0.1)]
    await echo("d", np.float16(3))  # type: ignore[arg-type]
    assert [one.cost for one in batches[2].requests] == [3]


@pytest.mark.parametrize(
    "cost",
    [0, -1, math.nan, math.inf, np.float16("inf"), 1e10, pytest.param(10**5000, id="huge"), "3", None, True],
)
async def test_a_cost_that_is_no_positive_number_is_the_callers_error(cost: Any) -> None:
    @batched(cost=lambda item: cost if item else 1)
    async def echo(items: list[int]) -> list[int]:
        return items

    with pytest.raises(ValueError, match=r"cost must return a number above 0 and at most 1000000000, got "):
        await echo(1)
    assert await echo(0) == 0


@pytest.mark.parametrize("argument", ["cost", "group_by"])
async def test_what_functions_of_an_item_raise_goes_to_its_caller(argument: str) -> None:
    def fail(item: int) -> int:
        if item:
            raise ZeroDivisionError(item)
        return 1

    @batched(**{argument: fail})  # type: ignore[arg-type]
    async def echo(items: list[int]) -> list[int]:
        return items

    wrong, right = await asyncio.gather(echo(1), echo(0), return_exceptions=True)
    assert (type(wrong), right) == (ZeroDivisionError, 0)
    with pytest.raises(DefinitionError, match=f"{argument} must be a function of an item, got 3"):
        batched(**{argument: 3})  # type: ignore[arg-type]


async def test_a_large_batch_size_of_cost_has_a_queue_that_fills_it() -> None:
    """As for an API: the size counts cost, and so does the queue."""

    @batched(cost=len, mb_max_batch_size=50_000, mb_max_latency=1e6)
    async def lengths(texts: list[str]) -> list[int]:
        await asyncio.sleep(0.1)
        return [len(text) for text in texts]

    assert await asyncio.gather(*[lengths("x" * 10_000) for _ in range(30)]) == [10_000] * 30
