"""Requests and answers of KServe V1 and of the Open Inference Protocol V2, over HTTP and gRPC."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers.catalogue import Row, compact, write_v2
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.messages import message, parse

# The datatypes of the models' answers, as numpy and the messages name them.
_GRPC_TYPES = {"FP64": ("<f8", "fp64_contents"), "INT64": ("<i8", "int64_contents")}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One protocol, for a model named peer."""

    path: str
    write: Callable[[Sequence[Row], str], bytes]
    """Writes the body of a request; V2 includes the id."""
    read: Callable[[bytes, str], list[object]]
    """Reads one value per row; raises LookupError, TypeError or ValueError if it is no answer to the id."""
    is_grpc: bool = False


def _write_v1(rows: Sequence[Row], request_id: str) -> bytes:
    return compact({"instances": [list(row) for row in rows]})


def _read_v1(answer: bytes, request_id: str) -> list[object]:
    values: list[object] = json.loads(answer)["predictions"]
    return values


def _read_v2(answer: bytes, request_id: str) -> list[object]:
    reply = json.loads(answer)
    if reply["id"] != request_id:
        raise ValueError(f"the id is {reply['id']!r}, expected {request_id!r}")
    (output,) = reply["outputs"]
    values: list[object] = output["data"]
    if output["shape"][0] != len(values):
        raise ValueError(f"the shape is {output['shape']}, with {len(values)} values")
    return values


def _write_grpc(rows: Sequence[Row], request_id: str) -> bytes:
    request = message("inference.ModelInferRequest")(model_name="peer", id=request_id)
    request.inputs.add(name="rows", datatype="FP64", shape=[len(rows), len(rows[0])])
    request.raw_input_contents.append(np.array(rows, "<f8").tobytes())
    written: bytes = request.SerializeToString()
    return written


def _read_grpc(answer: bytes, request_id: str) -> list[object]:
    try:
        reply: Any = parse(message("inference.ModelInferResponse"), answer)
    except BadRequest as error:
        raise ValueError(str(error)) from error
    if reply.id != request_id:
        raise ValueError(f"the id is {reply.id!r}, expected {request_id!r}")
    (output,) = reply.outputs
    kind, field = _GRPC_TYPES[output.datatype]
    if reply.raw_output_contents:
        values: list[object] = np.frombuffer(reply.raw_output_contents[0], kind).tolist()
    else:
        values = list(getattr(output.contents, field))
    if output.shape[0] != len(values):
        raise ValueError(f"the shape is {output.shape}, with {len(values)} values")
    return values


V1 = Dialect(path="/v1/models/peer:predict", write=_write_v1, read=_read_v1)
V2 = Dialect(path="/v2/models/peer/infer", write=write_v2, read=_read_v2)
V2_GRPC = Dialect(
    path="/inference.GRPCInferenceService/ModelInfer",
    write=_write_grpc,
    read=_read_grpc,
    is_grpc=True,
)
