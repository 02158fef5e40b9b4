"""Examples that /docs shows for an API."""

from __future__ import annotations

import datetime
import enum
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from uncork_workers.definition.adapters import Adapter, DataFrame, File, Image, Json, NdArray, Requests, Text
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.adapters.requests import Request
from uncork_workers.definition.examples import MOST_VALUES, NoExample, docs_example, example_from_schema
from uncork_workers.wire.messages import Meta


class Colour(enum.Enum):
    RED, GREEN = "red", "green"


class Tree(msgspec.Struct):
    """A recursive type."""

    colour: Colour
    data: bytes
    when: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    branches: list[Tree]
    key: uuid.UUID
    width: Annotated[float, msgspec.Meta(gt=2, lt=3)]
    trunk: Tree | None = None


class Order(pydantic.BaseModel):
    count: int = pydantic.Field(ge=3, lt=5)
    share: float = pydantic.Field(gt=0, lt=1)
    kind: Literal["large", "small"]
    by: dict[str, float]
    text: str = pydantic.Field(min_length=30, max_length=40)
    key: pydantic.UUID4 | None = None
    pair: tuple[int, str]
    even: int = pydantic.Field(multiple_of=2)
    before: Order | None = None


@pytest.mark.parametrize(
    "adapter",
    [
        NdArray(dtype="uint8", shape=(2, None)),
        NdArray(dtype="bool", shape=()),
        NdArray(dtype="float16", shape=(MOST_VALUES // 2,)),
        DataFrame(),
        DataFrame(columns=["a", "b", "c"], dtypes={"a": "uint8", "b": "str"}),
        Json(),
        Json(type=Order),
        Json(type=list[int] | str),
        Json(type=dict[str, Annotated[int, msgspec.Meta(le=-7)]]),
        Text(),
    ],
    ids=["array", "bool", "floats", "any table", "table", "any", "pydantic", "union", "map", "text"],
)
def test_one_is_made_that_the_adapter_takes(adapter: Adapter) -> None:
    body, media_type = docs_example(adapter, None, None)

    assert media_type == "application/json"
    assert len(adapter.merge([body])) == 1


def test_a_table_is_shown_with_all_its_columns() -> None:
    adapter = DataFrame(columns=["a", "b", "c"], dtypes={"a": "uint8", "b": "str"})

    assert msgspec.json.decode(docs_example(adapter, None, None)[0]) == {"a": 1, "b": "some text", "c": 0.5}


def test_what_contains_itself_does_so_once() -> None:
    """An optional field gets its default; a recursive list with a minimum length has no example."""
    with pytest.raises(NoExample, match="contain itself"):
        example_from_schema(
            {
                "$ref": "#/$defs/T",
                "$defs": {"T": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/T"}}},
            }
        )
    example = msgspec.json.decode(docs_example(Json(type=Tree), None, None)[0], type=Tree)
    assert (example.branches, example.trunk) == ([], None)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3},
        {"type": "integer", "exclusiveMaximum": -3},
        {"type": "integer", "exclusiveMinimum": 6, "multipleOf": 3},
        {"type": "number", "minimum": 0.1, "maximum": 0.2},
        {"type": "number", "exclusiveMinimum": 7, "exclusiveMaximum": 7.25},
        {"type": "number", "minimum": 0, "maximum": 0},
    ],
    ids=["least", "below", "steps", "narrow", "narrower", "zero"],
)
def test_numbers_keep_within_their_bounds(schema: dict[str, Any]) -> None:
    value = example_from_schema(schema)

    assert schema.get("minimum", value) <= value <= schema.get("maximum", value)
    assert schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1)
    assert value % schema.get("multipleOf", value or 1) == 0


@pytest.mark.parametrize(
    ("adapter", "cost_field"),
    [(NdArray(shape=(MOST_VALUES,)), None), (Json(), "text"), (File(), None), (Requests(), None)],
    ids=["large", "not to be weighed", "file", "request"],
)
def test_none_is_better_than_a_bad_one(adapter: Adapter, cost_field: str | None) -> None:
    assert docs_example(adapter, None, cost_field) == (b"", "")


def test_rules_that_a_schema_does_not_tell_are_kept() -> None:
    """A validator of the user may reject the example with any exception."""

    class Odd(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def check(cls, number: int) -> int:
            raise KeyError(number)

    assert docs_example(Json(type=Odd), None, None) == (b"", "")


@pytest.mark.parametrize(
    ("adapter", "sample", "shown"),
    [
        (Json(), Sample(b'{"a":7}'), (b'{"a":7}', "application/json")),
        (Json(), Sample(b"1" * 100_000), (b"", "")),
        (Requests(), Requests().sample(Request(body=b'{"a": 7}')), (b'{"a":7}', "application/json")),
        (
            Requests(),
            Sample("grüße".encode(), Meta("text/plain; charset=utf-8")),
            ('"grüße"'.encode(), "text/plain"),
        ),
        (Image(), Sample(b"\x89PNG", Meta("image/png")), (b"", "")),
    ],
    ids=["row", "large", "request", "text", "image"],
)
def test_the_example_of_the_service_is_shown(
    adapter: Adapter, sample: Sample, shown: tuple[bytes, str]
) -> None:
    assert docs_example(adapter, sample, None) == shown
