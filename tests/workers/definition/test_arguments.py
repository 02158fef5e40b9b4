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
TWO_NAMES = "classes must be two names with goals"
NUMBER = "concurrency must be a whole number of batches from 1 to 1000, got "


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"classes": CLASSES, "mb_max_latency": 100}, "exclude each other; remove mb_max_latency"),
        ({"classes": CLASSES, "policy": "fixed:5"}, "classes require policy 'cork', got 'fixed:5'"),
        *(
            ({"classes": wrong}, TWO_NAMES)
            for wrong in ({"one": 100}, {"a": 1, "b": 2, "c": 3}, [("a", 1), ("b", 2)], {})
        ),
        *(
            ({"classes": {name: 100, "bulk": None}}, "name of a class must be letters")
            for name in ("a b", "", 1)
        ),
        ({"classes": {"a": None, "b": 100}}, "goal of the first class must be a positive number"),
        ({"classes": {"a": 100, "b": "x"}}, "goal of the second class must be a positive number"),
        ({"classes": {"a": 100, "b": math.inf}}, "goal of the second class must be a positive number"),
        ({"classes": {"a": 100, "b": 100}}, "goals of classes must rise, got 100 and 100"),
        ({"coalesce": 1}, "coalesce must be True or False, got 1"),
        ({"coalesce": True, "idempotent": False}, "with idempotent=False each runs by itself; remove one"),
        ({"coalesce": True, "policy": "none"}, "with policy='none' each runs by itself; remove one"),
        *(
            ({"headers": ("x-tenant", name)}, f"^API 'plain': headers names '{name}', which may hold")
            for name in ("Authorization", "cookie", "Proxy-Authorization", "X-Api-Key")
        ),
        ({"headers": "x-tenant"}, r"headers .*got 'x-tenant'; write headers=\('x-tenant',\)$"),
        ({"headers": ("x tenant",)}, r"headers .*got \('x tenant',\)$"),
        ({"headers": (7,)}, r"headers .*got \(7,\)$"),
        ({"headers": None}, "headers .*got None$"),
        ({"headers": ("x-a", "X-A")}, "headers names 'X-A' twice; remove one$"),
        *(({"concurrency": wrong}, f"{NUMBER}{wrong!r}") for wrong in (0, -1, 1001, 2.0, "8", None, True)),
        ({"concurrency": 2}, "API 'plain': concurrency requires an async method, and plain"),
        ({"handler": fetch, "concurrency": 2, "workers": 1}, "concurrency leaves the workers to the other"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        described(**arguments)


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
