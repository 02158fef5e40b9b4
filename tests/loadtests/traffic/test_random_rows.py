"""Random rows, and the range that an OpenAPI document gives for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uncork_loadtests.traffic import random_rows
from uncork_loadtests.traffic.random_rows import Numbers, RandomRows, numbers_in, parse_range, parse_shape

FLOATS, INTEGERS = Numbers(), Numbers(low=0, high=9, integers=True)


def document(schema: Any, **body: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, **body}}
    return {
        "paths": {"/x": {"post": {"requestBody": {"content": content}}}},
        "components": {"schemas": {"Pixel": {"type": "integer", "minimum": 0, "maximum": 255}}},
    }


def row_of(**items: Any) -> dict[str, Any]:
    """A schema of a row or a list of rows, in the gateway's form."""
    row = {"type": "array", "items": items, "minItems": 4, "maxItems": 4}
    return {"anyOf": [row, {"type": "array", "items": row}]}


@pytest.mark.parametrize(("rows", "shape"), [(1, (4,)), (3, (4,)), (2, (2, 3))])
def test_rows_have_the_shape_that_is_asked_for(rows: int, shape: tuple[int, ...]) -> None:
    random = RandomRows(rows=rows, shape=shape)
    bodies = random.bodies(seed=5, count=3)
    found = json.loads(bodies[0])
    sizes = []
    while isinstance(found, list):
        sizes.append(len(found))
        found = found[0]

    assert tuple(sizes) == ((rows, *shape) if rows > 1 else shape)
    assert isinstance(found, float)
    assert len(set(bodies)) == 3
    assert bodies == random.bodies(seed=5, count=3)
    assert bodies != random.bodies(seed=6, count=3)


def test_large_bodies_are_few_and_larger_ones_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ValueError, match=r"at most 10,000,000 values, 2 random rows of shape 9999999,.* has 19,999,998"
    ):
        RandomRows(shape=(9_999_999,), rows=2)
    monkeypatch.setattr(random_rows, "_MOST_VALUES", 20)
    assert len(RandomRows(shape=(2, 2), rows=2).bodies(seed=1)) == 2
    assert len(RandomRows(shape=(2, 2)).bodies(seed=1, count=3)) == 3


@given(low=st.floats(-1e3, 1e3), span=st.floats(1e-2, 1e6))
@example(low=0.0, span=1.0)
def test_numbers_lie_between_the_bounds(low: float, span: float) -> None:
    numbers = Numbers(low=low, high=low + span)
    for body in RandomRows(shape=(10,), numbers=numbers).bodies(seed=1, count=100):
        assert all(numbers.low < one < numbers.high for one in json.loads(body))


@given(low=st.integers(-1000, 1000), span=st.integers(1, 300))
def test_integers_include_the_bounds(low: int, span: int) -> None:
    numbers = Numbers(low=low, high=low + span, integers=True)
    bodies = RandomRows(shape=(200,), numbers=numbers).bodies(seed=1, count=100)
    found = {one for body in bodies for one in json.loads(body)}

    assert found == set(range(low, low + span + 1))
    assert all(isinstance(one, int) for one in found)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0,255", Numbers(low=0, high=255, integers=True)),
        (" -3 , +3 ", Numbers(low=-3, high=3, integers=True)),
        ("0.0,1.0", FLOATS),
        ("0,1.5", Numbers(low=0, high=1.5)),
        ("-1e3,1e3", Numbers(low=-1000, high=1000)),
        *((text, None) for text in ["", "1", "1,1", "2,1", "0,x", "0,nan", "0,inf", "1,2,3", "0,1e10"]),
    ],
)
def test_a_range_makes_integers_if_both_ends_are(text: str, numbers: Numbers | None) -> None:
    """Other texts are refused."""
    if numbers is not None:
        assert parse_range(text) == numbers
    else:
        with pytest.raises(ValueError, match=r"--range takes two numbers .* 0,255 for integers"):
            parse_range(text)


@pytest.mark.parametrize("text", ["", "4,", "0", "4,-1", "x", "100000000", "1," * 20 + "1", "9" * 5000])
def test_other_shapes_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"--shape takes sizes separated by commas, such as 4 or 28,28, at most"
    ):
        parse_shape(text)
    assert parse_shape("28, 28") == (28, 28)


@pytest.mark.parametrize(
    ("items", "numbers"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 255}, Numbers(low=0, high=255, integers=True)),
        ({"type": "number", "minimum": -1, "maximum": 1}, Numbers(low=-1, high=1)),
        ({"type": "integer", "minimum": 1}, Numbers(low=1, high=10, integers=True)),
        ({"type": "integer", "minimum": -5}, INTEGERS),
        ({"type": "integer", "maximum": 100}, INTEGERS),
        ({"type": "integer", "maximum": 3}, Numbers(low=0, high=3, integers=True)),
        ({"type": "number", "maximum": 0}, Numbers(low=-1, high=0)),
        ({"type": "integer", "exclusiveMinimum": 0}, Numbers(low=1, high=10, integers=True)),
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 5},
            Numbers(low=1, high=5, integers=True),
        ),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 5}, Numbers(low=0, high=5)),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, INTEGERS),
        ({"$ref": "#/components/schemas/Pixel"}, Numbers(low=0, high=255, integers=True)),
        ({"type": "array", "items": {"type": "integer"}}, INTEGERS),
        ({"type": "number"}, None),
        ({"type": "string"}, None),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, None),
        ({"$ref": "#/nowhere"}, None),
        (True, None),
    ],
)
def test_bounds_are_those_of_the_schema(items: Any, numbers: Numbers | None) -> None:
    schema = row_of() | {"anyOf": [{"type": "array", "items": items}, {}]}

    assert numbers_in(document(schema), path="/x") == numbers


@pytest.mark.parametrize(
    ("kind", "shown", "numbers"),
    [
        ("number", [5.1, 3.5, 1.4, 0.2], Numbers(low=0.2, high=5.1)),
        ("number", [0, 16, 3], Numbers(low=0, high=16)),
        ("integer", [[0, 16], [3, 4]], Numbers(low=0, high=16, integers=True)),
        ("integer", [1, 1], INTEGERS),
        ("number", [0.5, 0.5], None),
        ("number", [1, None], None),
        (None, [1, 7], Numbers(low=1, high=7, integers=True)),
        (None, {"instances": [1, 2]}, None),
        (None, [], None),
    ],
)
def test_without_bounds_numbers_are_like_those_of_the_example(
    kind: str | None, shown: Any, numbers: Numbers | None
) -> None:
    schema = row_of(type=kind) if kind else {}

    assert numbers_in(document(schema, example=shown), path="/x") == numbers
    assert numbers_in(document(schema, examples={"one": {"value": shown}}), path="/x") == numbers


@pytest.mark.parametrize("strange", [{}, {"paths": []}, {"paths": {"/x": {"post": None}}}, document([])])
def test_a_document_may_say_nothing(strange: dict[str, Any]) -> None:
    assert numbers_in(strange, path="/x") is None
    assert numbers_in(document(row_of(type="integer")), path="/y") is None
