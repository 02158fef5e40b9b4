"""``@api(classes=...)``: what can be meant."""

import math
from typing import Any

import msgspec
import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, find_apis
from uncork_workers.wire.overrides import for_all_apis, with_overrides
from uncork_workers.wire.schema import ApiDescription, DefinitionError

CLASSES: dict[str, float | None] = {"interactive": 100, "bulk": 10_000}


def described(**arguments: Any) -> ApiDescription:
    class Classed(Service):
        @api(input=Json(), **arguments)
        def predict(self, rows: Any) -> Any:
            return rows

    return find_apis(Classed)[0].description


@pytest.mark.parametrize(("goal_ms", "goal_s"), [(10_000, 10.0), (100.5, 0.1005), (None, math.inf)])
def test_the_first_goal_is_the_latency_goal(goal_ms: float | None, goal_s: float) -> None:
    made = described(classes={"now": 100, "later-1_B": goal_ms})
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=ApiDescription)
    assert back.class_names == ("now", "later-1_B")
    assert (back.settings.mb_max_latency, back.bulk_goal_s) == (100, goal_s)


def test_without_classes_there_is_one_goal() -> None:
    made = described()
    assert (made.class_names, made.bulk_goal_s, made.settings.mb_max_latency) == (None, None, 300)
    assert described(mb_max_latency=50).settings.mb_max_latency == 50


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"classes": CLASSES, "mb_max_latency": 100}, "exclude each other; remove mb_max_latency"),
        ({"classes": CLASSES, "policy": "fixed:5"}, "classes require policy 'cork', got 'fixed:5'"),
        ({"classes": {"one": 100}}, "classes must be two names with goals"),
        ({"classes": {"a": 1, "b": 2, "c": 3}}, "classes must be two names with goals"),
        ({"classes": [("a", 1), ("b", 2)]}, "classes must be two names with goals"),
        ({"classes": {}}, "classes must be two names with goals"),
        ({"classes": {"a b": 100, "bulk": None}}, "name of a class must be letters"),
        ({"classes": {"": 100, "bulk": None}}, "name of a class must be letters"),
        ({"classes": {1: 100, "bulk": None}}, "name of a class must be letters"),
        ({"classes": {"a": None, "b": 100}}, "goal of the first class must be a positive number"),
        ({"classes": {"a": 100, "b": "x"}}, "goal of the second class must be a positive number"),
        ({"classes": {"a": 100, "b": math.inf}}, "goal of the second class must be a positive number"),
        ({"classes": {"a": 100, "b": 100}}, "goals of classes must rise, got 100 and 100"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        described(**arguments)


def test_a_stream_has_no_classes() -> None:
    with pytest.raises(DefinitionError, match="classes does not apply to streaming"):

        class Streaming(Service):
            @api(input=Json(), policy="none", classes=CLASSES)
            def predict(self, rows: Any) -> Any:
                yield rows


def test_configuration_sets_the_goal_of_the_first_class() -> None:
    changed = with_overrides(described(classes=CLASSES), for_all_apis({"mb_max_latency": 500}))
    changed.check()
    assert (changed.settings.mb_max_latency, changed.bulk_goal_s) == (500, 10)
    late = with_overrides(changed, for_all_apis({"mb_max_latency": 10_000}))
    with pytest.raises(DefinitionError, match="must be less than 10000 ms, the goal of 'bulk'"):
        late.check()
