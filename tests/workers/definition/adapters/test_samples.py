"""Descriptions of inputs for the gateway, and warm-up examples as the requests that clients would send."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest

from uncork_workers.definition.adapters import (
    Adapter,
    DataFrame,
    File,
    Image,
    InvalidInput,
    Json,
    NdArray,
    Requests,
    Text,
)
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.adapters.requests import Request, RequestAdapter
from uncork_workers.wire.messages import Meta


class Plain(RequestAdapter):
    def handle_batch_request(self, requests: Sequence[Request]) -> Sequence[Any]:
        return requests


class Points(Plain):
    accepts = ("application/x-points",)


def raw(*accepts: str) -> dict[str, Any]:
    return {"kind": "raw", "accepts": [*accepts]}


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        (File(), raw("application/octet-stream", "*")),
        (File(parts=("image", "mask")), raw("multipart/form-data")),
        (Image(), raw("image/*", "multipart/form-data", "application/octet-stream")),
        (Requests(), raw("application/json", "*")),
        (Plain(), raw("application/octet-stream", "*")),
        (Points(), raw("application/x-points")),
        (Text(), {"kind": "text"}),
        (DataFrame(), {"kind": "dataframe", "columns": None}),
        (DataFrame(columns=["b", "a"]), {"kind": "dataframe", "columns": ["b", "a"]}),
        (NdArray(), {"kind": "ndarray", "dtype": "float64", "shape": [None]}),
        (NdArray(dtype="f4", shape=(28, 28)), {"kind": "ndarray", "dtype": "float32", "shape": [28, 28]}),
        (NdArray(dtype="?", shape=()), {"kind": "ndarray", "dtype": "bool", "shape": []}),
    ],
)
def test_the_gateway_is_told_what_an_input_takes(adapter: Adapter, told: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(adapter.describe())) == told


class Struct(msgspec.Struct):
    a: int


class Model(pydantic.BaseModel):
    a: int


@dataclass
class Record:
    a: int


@pytest.mark.parametrize(
    ("adapter", "example", "body"),
    [
        (NdArray(shape=(2,)), [1, 2.5], b"[1,2.5]"),
        (NdArray(shape=(2,)), np.array([1, 2.5]), b"[1.0,2.5]"),
        (NdArray(shape=()), np.float32(0.5), b"0.5"),
        (Json(), {"a": [np.int64(3), None]}, b'{"a":[3,null]}'),
        (Json(type=Struct), Struct(1), b'{"a":1}'),
        (Json(type=Record), Record(1), b'{"a":1}'),
        (Json(type=Model), Model(a=1), b'{"a":1}'),
        (Text(), "ä", '"ä"'.encode()),
        (DataFrame(columns=["a"]), {"a": np.float64(1.5)}, b'{"a":1.5}'),
    ],
)
def test_a_row_is_written_as_json(adapter: Adapter, example: Any, body: bytes) -> None:
    assert adapter.sample(example) == Sample(body)
    assert len(adapter.merge([body])) == 1


@pytest.mark.parametrize("example", [object(), "\ud800", {1j: 2}])
def test_what_is_no_json_is_refused(example: Any) -> None:
    with pytest.raises(InvalidInput, match="it cannot be written as JSON: "):
        Json().sample(example)


@pytest.mark.parametrize(
    ("adapter", "name", "media_type"),
    [
        (Image(), "a.png", "image/png"),
        (Image(), "a.jpg", "image/jpeg"),
        (Image(), "a.txt", "image/*"),
        (Image(), "picture", "image/*"),
        (File(), "a.pdf", "application/pdf"),
        (File(), "a", "application/octet-stream"),
        (File(parts=["a"]), "a.png", "multipart/form-data"),
        (Requests(), "a.csv", "text/csv"),
        (Requests(), "a", "application/json"),
    ],
)
def test_a_file_has_the_media_type_of_its_name(
    tmp_path: Path, adapter: Adapter, name: str, media_type: str
) -> None:
    (tmp_path / name).write_bytes(b"content")

    assert adapter.sample(tmp_path / name) == Sample(b"content", Meta(media_type))


def test_bytes_are_what_is_assumed_of_them() -> None:
    assert Requests().sample(b"1") == Sample(b"1", Meta("application/json"))
    assert Image().sample(b"1") == Sample(b"1", Meta("image/*"))


def test_a_request_is_sent_as_it_is() -> None:
    request = Request(
        body=b"x", content_type="text/plain", query={"a": "1 &", "b": ""}, headers={"x-id": "7"}
    )
    body, meta = Requests().sample(request)

    assert meta is not None
    assert list(Requests().merge_raw([body], [meta])) == [request]


@pytest.mark.parametrize("example", ["a.png", 5, None, {"a": b"1"}])
def test_anything_else_is_no_request(example: Any) -> None:
    """A string could be a path or a body."""
    with pytest.raises(InvalidInput, match=r"it must be bytes, a pathlib\.Path or a Request, got "):
        File().sample(example)
