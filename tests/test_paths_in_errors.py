"""A path in an error is the path in the body that the client sent, in every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest

from uncork import Service, api
from uncork.adapters import DataFrame, Json, NdArray, Text
from uncork.testing import Client, client
from uncork_gateway.codecs.dataframe import DataFrameCodec
from uncork_workers.wire.messages import RowPath


class Point(msgspec.Struct):
    """For msgspec."""

    x: float
    y: list[int] = []


class Named(msgspec.Struct):
    """With text."""

    x: float
    y: str


class Model(pydantic.BaseModel):
    """For pydantic."""

    x: float
    y: list[int] = []


class Kinds(Service):
    """Takes rows of each kind, and says nothing of them."""

    @api(input=NdArray(dtype="float32", shape=(4,)))
    def array(self, rows: Any) -> Any:
        """Numbers."""
        return [0] * len(rows)

    @api(input=NdArray(dtype="int64", shape=(2, 2)))
    def matrix(self, rows: Any) -> Any:
        """Numbers in two dimensions."""
        return [0] * len(rows)

    @api(input=Json(type=Point))
    def point(self, rows: Any) -> Any:
        """Objects, for msgspec."""
        return [0] * len(rows)

    @api(input=Json(type=Model))
    def model(self, rows: Any) -> Any:
        """Objects, for pydantic."""
        return [0] * len(rows)

    @api(input=Json(type=Named))
    def named(self, rows: Any) -> Any:
        """Objects with text."""
        return [0] * len(rows)

    @api(input=Json(type=int))
    def whole(self, rows: Any) -> Any:
        """Whole numbers."""
        return [0] * len(rows)

    @api(input=Text())
    def text(self, rows: Any) -> Any:
        """Texts."""
        return [0] * len(rows)

    @api(input=DataFrame(columns=["a", "b c"]))
    def table(self, rows: Any) -> Any:
        """Tables."""
        return [0] * len(rows)


@pytest.fixture(scope="module")
def kinds() -> Iterator[Client]:
    with client(Kinds) as served:
        yield served


def tensor(data: Any, shape: list[int], datatype: str = "FP32", name: str = "input-0") -> dict[str, Any]:
    """A tensor of V2 in JSON."""
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


NATIVE: list[tuple[str, Any, str]] = [
    ("array", ["a", 2, 3, 4], "$[0]"),
    ("array", [[1, 2, 3, 4], [1, 2, "a", 4]], "$[1][2]"),
    ("matrix", [[1, 2], [3, "a"]], "$[1][1]"),
    ("matrix", [[[1, 2], [3, "a"]]], "$[0][1][1]"),
    ("point", {"x": "a"}, "$.x"),
    ("point", {"x": 1, "y": [1, "a"]}, "$.y[1]"),
    ("point", {"y": []}, "$"),
    ("model", {"x": 1, "y": [1, "a"]}, "$.y[1]"),
    ("table", {"a": [1], "b c": 2}, "$.a"),
    ("table", [{"a": 1, "b c": 1}, {"a": 1, "b c": [1]}], "$[1]['b c']"),
    ("table", {"columns": ["b c", "a"], "data": [[1, 2], [1, [2]]]}, "$.data[1][1]"),
    ("table", {"a": [1, 2], "b c": [3, {}]}, "$['b c'][1]"),
    ("table", {"a": {"p": 1, "q": []}, "b c": {"p": 1, "q": 2}}, "$.a.q"),
    ("table", [{"a": [], "b c": 1}, 5], "$[0].a"),
]
V1: list[tuple[str, Any, str]] = [
    ("array", {"instances": [["a", 2, 3, 4]]}, "$.instances[0][0]"),
    ("array", {"inputs": [[1, 2, 3, 4], ["a", 2, 3, 4]]}, "$.inputs[1][0]"),
    ("point", {"instances": [{"x": 1}, {"x": "a"}]}, "$.instances[1].x"),
    ("model", {"instances": [{"x": 1}, {"x": 1, "y": ["a"]}]}, "$.instances[1].y[0]"),
    ("point", {"inputs": {"x": [1, "a"], "y": [[], []]}}, "$.inputs.x[1]"),
    ("table", {"instances": [{"a": 1, "b c": 2}, {"a": 1, "b c": []}]}, "$.instances[1]['b c']"),
    ("text", {"instances": ["a", 5]}, "$.instances[1]"),
]
V2: list[tuple[str, Any, str]] = [
    ("matrix", [tensor([1, 2, 3, 4, 5, 6.5, 7, 8], [2, 2, 2], datatype="INT64")], "$.inputs[0].data[5]"),
    (
        "matrix",
        [tensor([[[1, 2], [3, 4]], [[5, 6.5], [7, 8]]], [2, 2, 2], datatype="INT64")],
        "$.inputs[0].data[1][0][1]",
    ),
    (
        "point",
        [tensor([1, 2], [2], name="x"), tensor([1, 2, 3, 4.5], [2, 2], name="y", datatype="INT32")],
        "$.inputs[1].data[3]",
    ),
    ("text", [tensor(["a", 2], [2], datatype="BYTES")], "$.inputs[0].data[1]"),
    ("whole", [tensor([1, 2, 3, 4], [2, 2])], "$.inputs[0]"),
]


def detail(reply: Any) -> str:
    """What an answer of 400 says."""
    assert reply.status_code == 400, reply.text
    document = reply.json()
    text: str = document["detail"] if "detail" in document else document["error"]
    return text


@pytest.mark.parametrize(("to", "body", "path"), NATIVE)
def test_paths_in_native_bodies(kinds: Client, to: str, body: Any, path: str) -> None:
    """A single row is the body itself; tables have several forms."""
    assert f" at `{path}`" in detail(kinds.post(f"/{to}", json=body))


@pytest.mark.parametrize(("to", "body", "path"), V1)
@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_paths_in_bodies_of_v1(kinds: Client, to: str, body: Any, path: str, version: str) -> None:
    """KServe's and TensorFlow Serving's."""
    reply = kinds.post(f"/v1/models/kinds.{to}{version}:predict", json=body)

    assert f" at `{path}`" in detail(reply)


@pytest.mark.parametrize(("to", "inputs", "path"), V2)
def test_paths_in_bodies_of_v2(kinds: Client, to: str, inputs: Any, path: str) -> None:
    """Data may be flat or nested, and a row may be made of several inputs."""
    assert f"`{path}`" in detail(kinds.post(f"/v2/models/kinds.{to}/infer", json={"inputs": inputs}))


def test_a_row_of_a_binary_tensor_has_a_number(kinds: Client) -> None:
    data = np.array([1, 2.5], "<f4").tobytes()
    parameters = {"binary_data_size": len(data)}
    header = json.dumps(
        {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "parameters": parameters}]}
    ).encode()
    headers = {"inference-header-content-length": str(len(header))}

    reply = kinds.post("/v2/models/kinds.whole/infer", content=header + data, headers=headers)

    assert "got `float` - at row 1 of `$.inputs[0]`" in detail(reply)


def test_a_place_that_is_not_there_is_told_as_the_worker_says_it() -> None:
    asked = DataFrameCodec(columns=None).decode(b'{"columns": ["a"], "data": [[1]]}')

    assert asked.path_to(RowPath(0, ("a",))) == "`$.data[0][0]`"
    assert asked.path_to(RowPath(0, ("b",))) == "`$[0].b`"


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/table", b'{"a":[1],"a":2,"b c":3}', "`$[...]`"),
        (
            "/v1/models/kinds.table:predict",
            b'{"instances":[{"a":1,"b c":2},{"a":[1,2],"b c":NaN}]}',
            "`$.instances[1][...]`",
        ),
    ],
)
def test_a_column_that_cannot_be_found_is_not_named(kinds: Client, path: str, body: bytes, says: str) -> None:
    """One that is there twice, or is in JSON that not everybody reads; the request is still refused."""
    assert f" at {says}" in detail(kinds.post(path, content=body))


@pytest.mark.parametrize(
    ("to", "row"),
    [
        ("text", b'"\\ud800"'),
        ("table", b'{"a":1,"b c":"\\udc00"}'),
        ("table", b'{"a":NaN,"b c":"\\udc00"}'),
        ("named", b'{"x":1,"y":"\\ud800"}'),
    ],
)
@pytest.mark.parametrize("before", [b"", b"0,"])
def test_bytes_are_not_counted_in_what_is_cut_out_of_a_body(
    kinds: Client, to: str, row: bytes, before: bytes
) -> None:
    """Half a character passes where rows are cut out of a model server's body; its place is lost."""
    if before:
        before = row.replace(b"\\ud800", b"a").replace(b"\\udc00", b"a") + b","
    body = b'{"instances":[%b%b]}' % (before, row)

    told = detail(kinds.post(f"/v1/models/kinds.{to}:predict", content=body))

    assert "is half of a character" in told
    assert "byte" not in told


def test_neighbours_have_paths_of_their_own(kinds: Client) -> None:
    replies = kinds.post_all("/array", json=[[1, 2, 3, 4], ["a", 2, 3, 4], [[0] * 4, [0, 0, 0, "a"]]])

    assert replies[0].status_code == 200
    assert " at `$[0]`" in detail(replies[1])
    assert " at `$[1][3]`" in detail(replies[2])
