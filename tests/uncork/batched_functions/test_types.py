"""Type checkers know the calls of batched functions; scripts/check runs mypy on this file."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, assert_type

import pytest

from uncork import Batched, batched

pytestmark = pytest.mark.virtual_time


@batched(mb_max_latency=100)
async def embed(texts: list[str]) -> list[float]:
    return [1.0 for _ in texts]


@batched()
def plain(texts: list[str]) -> list[float]:
    return [2.0 for _ in texts]


@batched(cost=lambda query, count: count)
async def rank(queries: list[str], counts: list[int]) -> tuple[bytes, ...]:
    return tuple([query.encode() * count for query, count in zip(queries, counts, strict=True)])


@batched()
async def with_default(texts: list[str], count: Any = 2) -> list[str]:
    return [text * times for text, times in zip(texts, count, strict=True)]


@batched()
async def by_name(texts: list[str], *, count: list[int]) -> list[str]:
    return [text * times for text, times in zip(texts, count, strict=True)]


class Model:
    @batched()
    async def embed(self, texts: list[str]) -> list[float]:
        return [3.0 for _ in texts]

    @batched()
    def rank(self, queries: list[str], counts: list[int]) -> list[str]:
        return [query * count for query, count in zip(queries, counts, strict=True)]


class Other(Model):
    @batched()
    async def embed(self, texts: list[str]) -> list[float]:
        return [1 + await super(Other, self).embed(text) for text in texts]


async def test_results_and_arguments_have_types() -> None:
    assert_type(embed, Batched[[str], float])
    assert_type(plain, Batched[[str], float])
    assert_type(rank, Batched[[str, int], bytes])
    assert_type(Model().embed, Batched[[str], float])
    assert_type(Model().rank, Batched[[str, int], str])
    waits: Awaitable[float] = embed("a")

    assert await waits == 1.0
    assert await rank("a", 2) == b"aa"
    assert assert_type(await with_default("a", count=3), Any) == "aaa"
    assert assert_type(await by_name("a", count=3), str) == "aaa"
    assert await Other().embed("a") == 4.0
    assert await Model().embed("a") == 3.0


async def test_wrong_calls_are_found() -> None:
    """Each would be an unused comment if mypy accepted the call."""
    for call in (
        lambda: embed("a", "b"),  # type: ignore[call-arg]
        lambda: rank("a"),  # type: ignore[call-arg]
        lambda: Model().embed(),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            await call()
