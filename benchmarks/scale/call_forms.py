"""One array in each form in which clients send it to the service in ``services/arrays.py``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from benchmarks.harness.grpc_wire import prefixed
from benchmarks.harness.rounds import ask_alone
from uncork_gateway.grpc.messages import message
from uncork_loadtests.servers import HOST, BenchError, Server

JSON, BINARY, GRPC = "JSON", "V2 binary", "gRPC"
_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_LONE_SECONDS = 30.0
Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Form:
    """A request.

    Attributes:
        body: over gRPC the message, without the prefix of its frame.
        values: returns the values in an answer.
    """

    path: str
    body: bytes
    values: Callable[[bytes], Array]
    headers: Mapping[str, str] = field(default_factory=dict)
    is_grpc: bool = False

    @property
    def sent(self) -> bytes:
        """The body as it is sent."""
        return prefixed(self.body) if self.is_grpc else self.body


def call_forms(values: Array) -> dict[str, Form]:
    """Return a request of one row in each form."""
    return {JSON: _json(values), BINARY: _binary(values), GRPC: _grpc(values)}


def random_values(count: int) -> Array:
    """Return values of four decimals, as clients write them in JSON."""
    drawn: Array = np.random.default_rng(1).standard_normal(count, dtype=np.float32)
    return np.round(drawn, 4)


def check_answer(name: str, form: Form, *, server: Server, grpc_port: int, values: Array) -> None:
    """Call once; raise BenchError unless the answer has the values that were sent."""
    if form.is_grpc:
        answer = _call_alone(form, port=grpc_port)
    else:
        [answer] = ask_alone(server, path=form.path, bodies=[form.body], headers=form.headers)
    if not np.array_equal(form.values(answer), values):
        raise BenchError(f"{name}: the answer does not have the values that were sent: {answer[:200]!r}")


def _json(values: Array) -> Form:
    return Form(
        path="/echo",
        body=json.dumps([[float(str(value)) for value in values]]).encode(),
        values=lambda answer: np.array(json.loads(answer)[0], dtype=np.float32),
        headers={"Content-Type": "application/json"},
    )


def _binary(values: Array) -> Form:
    raw = values.tobytes()
    tensor = {"name": "rows", "datatype": "FP32", "shape": [1, len(values)]}
    inputs = [{**tensor, "parameters": {"binary_data_size": len(raw)}}]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    length = str(len(head))
    return Form(
        path="/v2/models/arrays/infer",
        body=head + raw,
        values=lambda answer: np.frombuffer(answer[-len(raw) :], dtype=np.float32),
        headers={"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": length},
    )


def _grpc(values: Array) -> Form:
    request = message("inference.ModelInferRequest")(model_name="arrays")
    request.inputs.add(name="rows", datatype="FP32", shape=[1, len(values)])
    request.raw_input_contents.append(values.tobytes())
    return Form(
        path=_METHOD,
        body=request.SerializeToString(),
        values=_raw_output,
        headers={"content-type": "application/grpc", "te": "trailers"},
        is_grpc=True,
    )


def _raw_output(answer: bytes) -> Array:
    response: Any = message("inference.ModelInferResponse").FromString(answer)
    return np.frombuffer(response.raw_output_contents[0], dtype=np.float32)


def _call_alone(form: Form, *, port: int) -> bytes:
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"{HOST}:{port}", options=options) as channel:
        method: Any = channel.unary_unary(form.path)
        try:
            answer: bytes = method(form.body, timeout=_LONE_SECONDS)
        except grpc.RpcError as error:
            raise BenchError(f"a single gRPC call fails: {error}") from error
    return answer
