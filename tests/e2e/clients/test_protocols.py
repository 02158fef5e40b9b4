"""The clients that people have, on one service of ours: native, KServe V1, V2 in JSON and binary."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton

from tests.e2e.server import HTTP, SERVICES, Server, serving

MODELS = f"{SERVICES / 'models.py'}:Models"
ROWS = [[float(number), number + 0.5, -number] for number in range(24)]
DOUBLED = [[2 * value for value in row] for row in ROWS]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(MODELS, "--grpc-port", "0") as running:
        yield running


def infer(server: Server, rows: list[list[float]], *, binary: bool) -> np.ndarray[Any, Any]:
    """Ask as Triton's own client does."""
    with triton.InferenceServerClient(server.base.removeprefix("http://")) as client:
        values = triton.InferInput("rows", [len(rows), 3], "FP32")
        values.set_data_from_numpy(np.array(rows, np.float32), binary_data=binary)
        wanted = triton.InferRequestedOutput("output-0", binary_data=binary)
        result = client.infer("models", [values], outputs=[wanted], request_id="seven")
        assert result.get_response()["id"] == "seven"
        found: np.ndarray[Any, Any] = result.as_numpy("output-0")
        assert found.dtype == np.float32
        return found


def post(server: Server, path: str, body: object) -> httpx.Response:
    return HTTP.post(server.base + path, json=body)


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_client_is_answered(server: Server, binary: bool) -> None:
    assert infer(server, ROWS[:3], binary=binary).tolist() == DOUBLED[:3]
    assert post(server, "/predict", ROWS[:3]).json() == DOUBLED[:3]


def test_values_that_json_has_no_word_for_come_back_in_bytes(server: Server) -> None:
    """NaN and infinity as they are; in JSON they are null."""
    row = [math.inf, math.nan, -math.inf]

    np.testing.assert_array_equal(infer(server, [row], binary=True), [row])
    reply = HTTP.post(**{**question("npy", row), "url": f"{server.base}/predict"})
    np.testing.assert_array_equal(told("npy", reply), row)
    as_json = HTTP.post(f"{server.base}/predict", content=npy(row), headers={"content-type": NPY})
    assert as_json.json() == [None] * 3


def test_tritons_client_sees_health_and_metadata(server: Server) -> None:
    with triton.InferenceServerClient(server.base.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("models")
        assert not client.is_model_ready("others")
        assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
        [described] = client.get_model_metadata("models")["inputs"]
        assert (described["datatype"], described["shape"]) == ("FP32", [-1, 3])
        with pytest.raises(triton.InferenceServerException, match="unknown model: 'others'"):
            client.get_model_metadata("others")


def test_texts_and_several_inputs_go_both_ways(server: Server) -> None:
    """BYTES of unequal length, and objects of two inputs; outputs by name."""
    with triton.InferenceServerClient(server.base.removeprefix("http://")) as client:
        words = triton.InferInput("word", [2], "BYTES")
        words.set_data_from_numpy(np.array(["a", "größer"], dtype=object))
        numbers = triton.InferInput("number", [2, 2], "INT64")
        numbers.set_data_from_numpy(np.array([[1, 2], [2**53 + 1, 4]]), binary_data=False)
        alone = client.infer("models.texts", [words], outputs=[triton.InferRequestedOutput("item")])
        both = client.infer("models.texts", [words, numbers])

    assert [text.decode() for text in alone.as_numpy("item")] == ["a", "größer"]
    items = [json.loads(text) for text in both.as_numpy("item")]
    assert items == [{"word": "a", "number": [1, 2]}, {"word": "größer", "number": [2**53 + 1, 4]}]


NPY = "application/x-npy"


def npy(row: list[float]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(row, np.float32))
    return file.getvalue()


def binary(row: list[float], *, answer: bool) -> dict[str, Any]:
    """A request of V2 with a binary input, for an answer that is binary or JSON."""
    data = np.array(row, "<f4").tobytes()
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": answer}}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    return {"url": "/v2/models/models/infer", "content": head + data, "headers": headers}


def question(kind: str, row: list[float]) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": row}
    match kind:
        case "native":
            return {"url": "/predict", "json": row}
        case "npy":
            headers = {"content-type": NPY, "accept": NPY}
            return {"url": "/predict", "content": npy(row), "headers": headers}
        case "v1":
            return {"url": "/v1/models/models:predict", "json": {"instances": [row]}}
        case "v2":
            return {"url": "/v2/models/models/infer", "json": {"inputs": [tensor]}}
        case "tensorflow":
            return {"url": "/v1/models/models/versions/1:predict", "json": {"inputs": [row]}}
    return binary(row, answer=kind == "binary")


def told(kind: str, reply: httpx.Response) -> list[float]:
    """The row that it was answered with, in the form that it wanted."""
    match kind:
        case "native":
            row = reply.json()
        case "npy":
            array = np.load(io.BytesIO(reply.content))
            assert array.dtype == np.float32
            row = array.tolist()
        case "v1":
            assert reply.json()["batchId"] == reply.headers["x-batch-id"]
            [row] = reply.json()["predictions"]
        case "tensorflow":
            [row] = reply.json()["outputs"]
        case _:
            end = int(reply.headers.get("inference-header-content-length", len(reply.content)))
            [output] = json.loads(reply.content[:end])["outputs"]
            assert (output["shape"], output["datatype"]) == ([1, 3], "FP32")
            assert ("data" in output) == (kind != "binary")
            row = output.get("data") or np.frombuffer(reply.content[end:], "<f4").tolist()
    return list(row)
