"""Requests of all protocols: how they have rows, and how responses have results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tests.gateway.grpc import bodies
from tests.simulation.workers import Row, row_of_values, status_of, values_of
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.v2 import CONTENTS, WANTS_FINAL
from uncork_workers.wire.schema import ApiDescription
from uncork_workers.wire.tensors import LENGTH_BYTES, encoded

if TYPE_CHECKING:
    from tests.simulation.schedule import Owner, Schedule

_JSON_LENGTH = "inference-header-content-length"
_InferRequest = message("inference.ModelInferRequest")
Headers = dict[str, str]


class Asked(Protocol):
    """What clients ask: a service, or a proxy."""

    def model_of(self, api: ApiDescription) -> str:
        """Return the name of an API in other protocols."""

    def route_of(self, api: ApiDescription) -> str:
        """Return the path of an API."""

    def has_reshaped(self, api: ApiDescription) -> bool:
        """Return whether the API's form may have changed since the clients asked."""

    def explains(self, ask: Ask, status: int, text: str) -> bool:
        """Return whether something that happened explains an error."""


@dataclass
class Ask:
    """A request.

    Attributes:
        model: the name of its API in other protocols.
        id: its id, which the response has too; empty if it has none.
        read: returns the results in a response.
        raw: the request as HTTP, or the message of a call.
        faults: the statuses of the responses that its faults may get; empty without faults.
        sent_at: when its last byte was written.
    """

    service: Asked = field(repr=False)
    api: ApiDescription = field(repr=False)
    model: str
    rows: list[Row]
    id: str = ""
    read: Callable[[Headers, bytes], list[Any]] = field(repr=False, default=lambda headers, body: [])
    raw: bytes = field(default=b"", repr=False)
    faults: set[int] = field(default_factory=set)
    timeout_s: float | None = None
    sent_at: float | None = None

    @property
    def is_nonsense(self) -> bool:
        """True if it cannot have a result."""
        may_be_read = not self.faults or self.service.has_reshaped(self.api)
        return status_of(self.rows) != 200 or not may_be_read


def some_ask(
    schedule: Schedule,
    owner: Owner,
    name: str,
    random: Random,
    target: tuple[Asked, ApiDescription],
    *,
    many: bool,
) -> Ask:
    """Return a request of an owner without its bytes; a row may be bad, or kill its worker."""
    service, api = target
    count = random.choice([1, 2, 3, 8, 30]) if many else 1
    rows = [schedule.row(owner, random, repeats=api.coalesce) for _ in range(count)]
    if schedule.is_odd(f"{name}.bad_row", 0.05):
        rows[-1]["status"] = random.choice([422, 500])
    if schedule.fails(f"{name}.kills", 0.02):
        rows[-1]["kills"] = True
    timeout_s = random.choice([0.001, 0.05, 0.5]) if schedule.is_odd(f"{name}.timeout", 0.15) else None
    return Ask(
        service, api, service.model_of(api), rows, name if random.random() < 0.5 else "", timeout_s=timeout_s
    )


class Tensor(NamedTuple):
    """An input; ``inner`` is the shape of a row."""

    name: str
    datatype: str
    inner: list[int]
    values: list[Any]


def tensors_of(rows: Sequence[Row], api: ApiDescription) -> list[Tensor]:
    """Return rows as the inputs of an API: one array, or a column for each field."""
    if api.input["kind"] == "ndarray":
        return [Tensor("x", "INT64", [4], [value for row in rows for value in values_of(row)])]
    types = {"n": "INT64", "g": "BYTES", "status": "INT64", "kills": "BOOL"}
    whole = [row_of_values(values_of(row)) for row in rows]
    return [Tensor(name, datatype, [], [row[name] for row in whole]) for name, datatype in types.items()]


def infer_request(ask: Ask, *, is_raw: bool) -> bytes:
    """Return a message of ModelInfer."""
    request = _InferRequest(model_name=ask.model, id=ask.id)
    request.parameters[WANTS_FINAL].bool_param = True
    for name, datatype, inner, values in tensors_of(ask.rows, ask.api):
        added = request.inputs.add(name=name, datatype=datatype, shape=[len(ask.rows), *inner])
        if is_raw:
            request.raw_input_contents.append(encoded(values, datatype))
        else:
            plain = [value.encode() for value in values] if datatype == "BYTES" else values
            getattr(added.contents, CONTENTS[datatype]).extend(plain)
    written: bytes = request.SerializeToString()
    return written


def inferred(response: Any) -> list[Any]:
    """Return the results in a response of ModelInfer."""
    if response.raw_output_contents:
        return unprefixed(response.raw_output_contents[0])
    return [value.decode() for value in response.outputs[0].contents.bytes_contents]


def predict_request(ask: Ask, *, is_raw: bool) -> bytes:
    """Return a message of Predict."""
    named = []
    for name, datatype, inner, values in tensors_of(ask.rows, ask.api):
        plain = [value.encode() for value in values] if datatype == "BYTES" else values
        array = np.array(plain, bodies.KINDS[datatype].layout).reshape(len(ask.rows), *inner)
        named.append(bodies.Named(name, datatype, array))
    request = bodies.predict_request(*named, typed=not is_raw, model_spec={"name": ask.model})
    written: bytes = request.SerializeToString(deterministic=True)
    return written


def predicted(response: Any) -> list[Any]:
    """Return the results in a response of Predict."""
    [output] = response.outputs.values()
    return [value.decode() for value in output.string_val]


def unprefixed(data: bytes) -> list[str]:
    """Return the elements of a binary BYTES tensor."""
    texts, at = [], 0
    while at < len(data):
        start = at + LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "little")
        texts.append(data[start:at].decode())
    return texts


class Form(NamedTuple):
    """A protocol over HTTP.

    Attributes:
        path: its path of the model.
        write: returns headers and body of a request.
    """

    path: str
    write: Callable[[Sequence[Row], ApiDescription, Random], tuple[Headers, bytes]]
    read: Callable[[Headers, bytes], list[Any]]


def _rows(rows: Sequence[Row], api: ApiDescription) -> list[Any]:
    return [values_of(row) if api.input["kind"] == "ndarray" else row for row in rows]


def _native(rows: Sequence[Row], api: ApiDescription, random: Random) -> tuple[Headers, bytes]:
    body: Any = _rows(rows, api)
    if api.task:
        body = {random.choice(["input", "inputs"]): body}
    elif len(rows) == 1:
        [body] = body
    types = {"raw": ["a/b", "application/json", ""], "json": ["application/json", ""]}
    wanted = random.choice(types.get(api.input["kind"], ["application/json"]))
    return {"content-type": wanted} if wanted else {}, json.dumps(body).encode()


def _read_native(headers: Headers, body: bytes) -> list[Any]:
    if headers["content-type"] == "text/plain":
        return [body.decode()]
    said = json.loads(body)
    if isinstance(said, dict) and "data" in said:
        return [one["embedding"] for one in said["data"]]
    return _plain(said if isinstance(said, list) else [said])


def _plain(results: list[Any]) -> list[Any]:
    """Return results without what a task adds."""
    return [one["embedding"] if isinstance(one, dict) else one for one in results]


def _v1(rows: Sequence[Row], api: ApiDescription, random: Random) -> tuple[Headers, bytes]:
    return {}, json.dumps({"instances": _rows(rows, api)}).encode()


def _tf(rows: Sequence[Row], api: ApiDescription, random: Random) -> tuple[Headers, bytes]:
    columns: Any = {tensor.name: tensor.values for tensor in tensors_of(rows, api)}
    if api.input["kind"] == "ndarray":
        columns = _rows(rows, api)
    return {}, json.dumps({"inputs": columns, "signature_name": "serving_default"}).encode()


def _read_tf(headers: Headers, body: bytes) -> list[Any]:
    outputs: Any = json.loads(body)["outputs"]
    return outputs["embedding"] if isinstance(outputs, dict) else outputs  # type: ignore[no-any-return]


def _v2(rows: Sequence[Row], api: ApiDescription, random: Random) -> tuple[Headers, bytes]:
    is_binary = random.random() < 0.5
    described, blocks = [], []
    for name, datatype, inner, values in tensors_of(rows, api):
        data = encoded(values, datatype)
        own = {"parameters": {"binary_data_size": len(data)}} if is_binary else {"data": values}
        described.append({"name": name, "datatype": datatype, "shape": [len(rows), *inner], **own})
        blocks.append(data)
    parameters: dict[str, Any] = {"binary_data_output": random.random() < 0.5}
    if api.classes is not None and random.random() < 0.5:
        parameters["priority"] = 2
    text = json.dumps({"inputs": described, "parameters": parameters}).encode()
    return ({_JSON_LENGTH: str(len(text))}, b"".join([text, *blocks])) if is_binary else ({}, text)


def _read_v2(headers: Headers, body: bytes) -> list[Any]:
    size = int(headers.get(_JSON_LENGTH, len(body)))
    [output, *_] = json.loads(body[:size])["outputs"]
    if "data" in output:
        return list(output["data"])
    return unprefixed(body[size:][: output["parameters"]["binary_data_size"]])


NATIVE = Form("", _native, _read_native)
OF_MODELS = [
    Form("/v1/models/{}:predict", _v1, lambda _, body: _plain(json.loads(body)["predictions"])),
    Form("/v1/models/{}/versions/1:predict", _tf, _read_tf),
    Form("/v2/models/{}/infer", _v2, _read_v2),
]
