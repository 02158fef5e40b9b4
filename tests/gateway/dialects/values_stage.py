"""A service behind the dialects of all protocols, without sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.gateway.grpc.bodies import (
    KINDS,
    InferResponse,
    Named,
    PredictResponse,
    infer_request,
    predict_request,
    protos_of,
    tensors_of,
)
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects import V2, Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.pages.models.tensors import row_inputs
from uncork_workers.definition.service import Service, api, describe_service
from uncork_workers.process.batches.execution import Executor
from uncork_workers.wire.forms import compact_forms
from uncork_workers.wire.messages import Batch

BINARY = ("v2 binary", "grpc raw", "predict content")
"""The protocols that carry every bit."""
TYPED = ("grpc typed", "predict typed")
TENSORS = (*BINARY, *TYPED, "v2 json")
ROWS = ("columns", "instances", "named instances")
PROTOCOLS = (*TENSORS, *ROWS)


class Served:
    """An API with an adapter and a handler; ``got`` is what the handler got last."""

    def __init__(self, adapter: Any, handler: Callable[[Any], Any]) -> None:
        served = self
        self.got: Any = None

        class Values(Service):
            @api(input=adapter)
            def predict(self, rows: Any) -> Any:
                served.got = rows
                return handler(rows)

        [self.api] = describe_service(Values).apis
        self._executor = Executor(Values())
        codec, inputs = make_codec(self.api.input, None), row_inputs(self.api)
        of_tensors: dict[str, Any] = {"model": "m", "inputs": inputs, "saw": lambda outputs: None}
        self._v2 = V2(codec, **of_tensors)
        self._grpc = V2Grpc(codec, **of_tensors)
        self._predict = Predict(codec, **of_tensors)
        self._rest = Rest(codec, inputs=inputs, kserve=False)

    def read(self, protocol: str, inputs: list[Named]) -> Marshalled:
        match protocol:
            case "v2 json" | "v2 binary":
                body, headers = v2_body(inputs, binary=protocol == "v2 binary")
                return self._v2.read(body, headers)
            case "grpc raw" | "grpc typed":
                return self._grpc.read(infer_request(*inputs, typed=protocol == "grpc typed"))
            case "predict content" | "predict typed":
                return self._predict.read(predict_request(*inputs, typed=protocol == "predict typed"))
        return self._rest.read(rest_body(inputs, protocol), ())

    def run(self, *asked: Marshalled) -> list[HandlerResult]:
        """Execute requests as one batch."""
        bodies = [each.body for each in asked]
        batch = Batch(
            batch=1,
            api="predict",
            limit_rows=1000,
            lengths=list(map(len, bodies)),
            rows=[each.rows for each in asked],
            forms=compact_forms([each.form for each in asked]),
            raw=[each.raw for each in asked],
        )
        reply, answers = self._executor.run(batch, bodies)
        forms = reply.forms * (len(asked) if len(reply.forms) == 1 else 1)
        wrong = [answer for status, answer in zip(reply.statuses, answers, strict=True) if status != 200]
        if wrong:
            raise BadRequest(wrong[0].decode())
        return [HandlerResult(200, *each) for each in zip(answers, forms, strict=True)]

    def write(self, protocol: str, result: HandlerResult, asked: Marshalled) -> Any:
        """Return the outputs as tensors by name, or the JSON of other protocols."""
        match protocol:
            case "v2 json" | "v2 binary":
                head, body = self._v2.write(result, asked, batch_id="b")
                return v2_outputs(head, body)
            case "grpc raw" | "grpc typed":
                response = InferResponse.FromString(b"".join(self._grpc.write(result, asked)))
                return by_name(tensors_of(response.outputs, response.raw_output_contents))
            case "predict content" | "predict typed":
                response = PredictResponse.FromString(b"".join(self._predict.write(result, asked)))
                return by_name(protos_of(response.outputs))
        _, body = self._rest.write(result, asked, batch_id="b")
        return json.loads(body)

    def ask(self, protocol: str, *inputs: Named) -> Any:
        """Send a request alone and return its outputs."""
        asked = self.read(protocol, list(inputs))
        [result] = self.run(asked)
        return self.write(protocol, result, asked)


def by_name(tensors: list[Named]) -> dict[str, Named]:
    return {tensor.name: tensor for tensor in tensors}


def plain(array: Any) -> Any:
    if array.dtype.kind == "O":
        flat = [each.decode() if isinstance(each, bytes) else each for each in array.ravel()]
        return np.array([*flat, None], object)[:-1].reshape(array.shape).tolist()
    return array.tolist()


def v2_body(inputs: list[Named], *, binary: bool) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    described: list[Mapping[str, Any]] = []
    for each in inputs:
        of = {"name": each.name, "datatype": each.datatype, "shape": list(each.array.shape)}
        if binary:
            described.append({**of, "parameters": {"binary_data_size": len(each.raw)}})
        else:
            described.append({**of, "data": plain(each.array.ravel())})
    head = json.dumps({"inputs": described, "parameters": {"binary_data_output": binary}}).encode()
    if not binary:
        return head, ()
    blocks = b"".join(each.raw for each in inputs)
    return head + blocks, ((b"inference-header-content-length", b"%d" % len(head)),)


def v2_outputs(head: bytes, body: bytes) -> dict[str, Named]:
    lines = dict(line.split(b": ", 1) for line in head.splitlines())
    end = int(lines.get(b"inference-header-content-length", len(body)))
    outputs = {}
    at = end
    for each in json.loads(body[:end])["outputs"]:
        size = each.get("parameters", {}).get("binary_data_size")
        if size is None:
            layout = KINDS[each["datatype"]].layout
            values = [None if value is None and layout == "O" else value for value in each["data"]]
            array = np.array([*values, None], object)[:-1] if layout == "O" else np.array(values, layout)
        else:
            response = {"name": each["name"], "datatype": each["datatype"], "shape": each["shape"]}
            message = InferResponse(outputs=[response], raw_output_contents=[body[at : at + size]])
            [tensor] = tensors_of(message.outputs, message.raw_output_contents)
            array, at = tensor.array, at + size
        outputs[each["name"]] = Named(each["name"], each["datatype"], array.reshape(each["shape"]))
    return outputs


def rest_body(inputs: list[Named], protocol: str) -> bytes:
    columns = {each.name: plain(each.array) for each in inputs}
    if protocol == "columns":
        return json.dumps({"inputs": columns}).encode()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if protocol == "instances" and len(columns) == 1:
        rows = [next(iter(row.values())) for row in rows]
    return json.dumps({"instances": rows}).encode()
