"""``@api(group_by=...)``: what an API may group requests by, and the warm-up's group."""

import dataclasses
from typing import Any

import msgspec
import pytest

from uncork_workers.definition.adapters import Adapter, DataFrame, File, Json, NdArray, Text
from uncork_workers.definition.service import Service, api, find_apis
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.context import context
from uncork_workers.process.warmup import examples_of, warm_up
from uncork_workers.wire.schema import ApiDescription


class Open(msgspec.Struct):
    language: str


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    language: str


@dataclasses.dataclass
class Plain:
    text: str


def described(adapter: Adapter, **arguments: Any) -> ApiDescription:
    class Grouped(Service):
        @api(input=adapter, **arguments)
        def predict(self, rows: Any) -> Any:
            return rows

    return find_apis(Grouped)[0].description


@pytest.mark.parametrize(
    ("adapter", "group_by"),
    [
        (Json(), "language"),
        (Json(type=Open), "language"),
        (Json(type=Open), "other"),
        (Json(type=Closed), "language"),
        (Json(type=Closed | None), "language"),
        (Json(type=dict[str, int] | list[int]), "language"),
        (Json(type=Plain), ["text", "header:x"]),
        (DataFrame(), "language"),
        (DataFrame(columns=["language", "a"]), "language"),
        (NdArray(dtype="float32", shape=(2,)), ("header:x-lang", "parameter:beams")),
        (Text(), "parameter:beams"),
        (File(), "header:x-lang"),
    ],
)
def test_what_rows_may_have(adapter: Adapter, group_by: Any) -> None:
    wire = msgspec.json.encode(described(adapter, group_by=group_by))
    back = msgspec.json.decode(wire, type=ApiDescription)
    assert back.group_by == (tuple(group_by) if isinstance(group_by, list) else group_by)
    back.check()


def test_the_example_has_the_field() -> None:
    assert msgspec.json.decode(described(Json(), group_by="language").example) == {"language": "some text"}
    assert msgspec.json.decode(described(Json(type=Open), group_by="other").example).keys() == {
        "language",
        "other",
    }


class Warm(Service):
    def __init__(self) -> None:
        self.groups: list[Any] = []

    @api(input=Json(), group_by=("language", "header:x"), warmup={"language": "de"}, mb_max_batch_size=2)
    def predict(self, rows: list[Any]) -> list[Any]:
        self.groups.append(context().group)
        assert len(context().parameters) == len(rows)
        return rows


def test_the_warm_up_has_the_group_of_its_example() -> None:
    service = Warm()
    executor = Executor(service)
    warm_up(executor, examples_of(Warm, []), seconds=0.0, on_size=lambda api, rows: None)
    executor.close()
    assert set(service.groups) == {("de", None)}
