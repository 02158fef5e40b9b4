"""The ``concurrency`` of an API: for async methods only, and not beside settings that it contradicts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, describe_service
from uncork_workers.wire.schema import DefinitionError


async def fetch(self: Any, rows: list[Any]) -> list[Any]:
    return rows


async def stream(self: Any, rows: list[Any]) -> AsyncIterator[Any]:
    yield rows


def plain(self: Any, rows: list[Any]) -> list[Any]:
    return rows


@pytest.mark.parametrize("handler", [fetch, stream])
def test_an_async_method_may_have_several_batches(handler: Any) -> None:
    method = api(input=Json(), concurrency=8, policy="none")(handler)
    service: Any = type("Upstream", (Service,), {handler.__name__: method})
    [description] = describe_service(service).apis
    assert description.concurrency == 8


def test_by_default_there_is_one() -> None:
    class Upstream(Service):
        @api(input=Json())
        async def call(self, rows: list[Any]) -> list[Any]:
            return rows

    assert describe_service(Upstream).apis[0].concurrency == 1


@pytest.mark.parametrize("wrong", [0, -1, 1001, 2.0, "8", None, True])
def test_the_number_is_checked(wrong: Any) -> None:
    accepted = rf"API 'fetch': concurrency must be a whole number of batches from 1 to 1000, got {wrong!r}"
    with pytest.raises(DefinitionError, match=accepted):
        api(input=Json(), concurrency=wrong)(fetch)


def test_a_plain_method_blocks_the_worker() -> None:
    with pytest.raises(DefinitionError, match="API 'plain': concurrency requires an async method, and plain"):
        api(input=Json(), concurrency=2)(plain)
    api(input=Json(), concurrency=1)(plain)


def test_reserved_workers_and_slots_contradict_each_other() -> None:
    with pytest.raises(
        DefinitionError, match="API 'fetch': concurrency leaves the workers to the other APIs"
    ):
        api(input=Json(), concurrency=2, workers=1)(fetch)


def test_a_service_has_stages_or_concurrency() -> None:
    class Both(Service):
        def prepare(self, rows: list[Any]) -> list[Any]:
            return rows

        @api(input=Json(), prepare=prepare)
        def model(self, rows: list[Any]) -> list[Any]:
            return rows

        @api(input=Json(), concurrency=2)
        async def fetch(self, rows: list[Any]) -> list[Any]:
            return rows

    with pytest.raises(
        DefinitionError, match="'fetch' has concurrency and API 'model' has prepare or finish"
    ):
        describe_service(Both)
