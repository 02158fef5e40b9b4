"""Requests and answers of KServe V1 and of the Open Inference Protocol V2."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.peers.catalogue import Row


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One protocol, for a model named peer."""

    name: str
    path: str
    write: Callable[[Sequence[Row], str], bytes]
    """Writes the body of a request; V2 includes the id."""
    read: Callable[[bytes, str], list[object]]
    """Reads one value per row; raises LookupError, TypeError or ValueError if it is no answer to the id."""


def _write_v1(rows: Sequence[Row], request_id: str) -> bytes:
    return _compact({"instances": [list(row) for row in rows]})


def _read_v1(answer: bytes, request_id: str) -> list[object]:
    values: list[object] = json.loads(answer)["predictions"]
    return values


def _write_v2(rows: Sequence[Row], request_id: str) -> bytes:
    shape, values = [len(rows), len(rows[0])], [value for row in rows for value in row]
    tensor = {"name": "rows", "shape": shape, "datatype": "FP64", "data": values}
    return _compact({"id": request_id, "inputs": [tensor]})


def _read_v2(answer: bytes, request_id: str) -> list[object]:
    reply = json.loads(answer)
    if reply["id"] != request_id:
        raise ValueError(f"the id is {reply['id']!r}, expected {request_id!r}")
    (output,) = reply["outputs"]
    values: list[object] = output["data"]
    if output["shape"][0] != len(values):
        raise ValueError(f"the shape is {output['shape']}, with {len(values)} values")
    return values


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


V1 = Dialect(name="V1", path="/v1/models/peer:predict", write=_write_v1, read=_read_v1)
V2 = Dialect(name="V2", path="/v2/models/peer/infer", write=_write_v2, read=_read_v2)
