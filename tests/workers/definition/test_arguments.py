"""Arguments of ``@api``: classes, coalesce, headers and concurrency, as the gateway gets them and refused."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, describe_service
from uncork_workers.wire.overrides import apply_overrides, for_all_apis, with_overrides
from uncork_workers.wire.schema import ApiDescription, ServiceDescription
from uncork_workers.wire.values import DefinitionError

CLASSES: dict[str, float | None] = {"interactive": 100, "bulk": 10_000}


async def fetch(self: Any, rows: list[Any]) -> list[Any]:
    return rows


async def stream(self: Any, rows: list[Any]) -> AsyncIterator[Any]:
    yield rows


def plain(self: Any, rows: list[Any]) -> list[Any]:
    return rows


def described(handler: Any = plain, **arguments: Any) -> ApiDescription:
    """Return the description of an API with these arguments, as the gateway gets it."""
    method = api(input=Json(), **arguments)(handler)
    service: Any = type("Served", (Service,), {handler.__name__: method})
    [description] = describe_service(service).apis
    return msgspec.msgpack.decode(msgspec.msgpack.encode(description), type=ApiDescription)


@pytest.mark.parametrize(("goal_ms", "goal_s"), [(10_000, 10.0), (100.5, 0.1005), (None, math.inf)])
def test_the_first_goal_of_classes_is_the_latency_goal(goal_ms: float | None, goal_s: float) -> None:
    made = described(classes={"now": 100, "later-1_B": goal_ms})
    assert made.class_names == ("now", "later-1_B")
    assert (made.settings.mb_max_latency, made.bulk_goal_s) == (100, goal_s)


def test_the_gateway_gets_the_arguments_and_their_defaults() -> None:
    made = described()
    assert (made.class_names, made.bulk_goal_s, made.settings.mb_max_latency) == (None, None, 300)
    assert (made.coalesce, made.headers, made.concurrency) == (False, (), 1)
    assert described(coalesce=True).coalesce
    assert described(headers=["X-Tenant", "x-request-id"]).headers == ("x-tenant", "x-request-id")
    for handler in (fetch, stream):
        assert described(handler, concurrency=8, policy="none").concurrency == 8


def test_configuration_sets_the_goal_of_the_first_class() -> None:
    changed = with_overrides(described(classes=CLASSES), for_all_apis({"mb_max_latency": 500}))
    changed.check()
    assert (changed.settings.mb_max_latency, changed.bulk_goal_s) == (500, 10)
    late = with_overrides(changed, for_all_apis({"mb_max_latency": 10_000}))
    with pytest.raises(DefinitionError, match="must be less than 10000 ms, the goal of 'bulk'"):
        late.check()


def test_the_configuration_cannot_contradict_coalesce() -> None:
    service = ServiceDescription(name="S", apis=[described(coalesce=True)])
    with pytest.raises(DefinitionError, match="idempotent=False each runs by itself"):
        apply_overrides(service, for_all_apis({"idempotent": False}))
