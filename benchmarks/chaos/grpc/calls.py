"""Questions over gRPC, and their answers with the HTTP statuses that stand for them in the ledger."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from benchmarks.chaos.questions import Act, Question, Row, right_answer
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.statuses import Code, status_of
from uncork_loadtests.generator.http_reply import Reply

INFER, STREAM_INFER, PREDICT = "ModelInfer", "ModelStreamInfer", "Predict"
PATHS = {
    **{kind: f"/inference.GRPCInferenceService/{kind}" for kind in (INFER, STREAM_INFER)},
    PREDICT: f"/tensorflow.serving.PredictionService/{PREDICT}",
}
"""The path of each method."""
_MODEL = "chaos"
_TEXT = ("BYTES", "bytes_contents", 7, "string_val")
_FIELDS = {"number": ("INT64", "int64_contents", 9, "int64_val"), "pad": _TEXT, "act": _TEXT}
"""The datatype and the field of the values of each input, in V2 and in TensorFlow."""
_INTERNAL_ERRORS = {
    502: re.compile("died while running this request"),
    500: re.compile("the handler of API .* failed"),
}
_ERRORS = {
    **_INTERNAL_ERRORS,
    503: re.compile("overloaded: |no worker is ready|shutting down"),
    504: re.compile("exceeded the timeout of this API"),
}
"""What an error means that has a text only."""
_UNKNOWN = 400
_Stream, _Infer, _Predict = (
    message(name)
    for name in (
        "inference.ModelStreamInferResponse",
        "inference.ModelInferResponse",
        "tensorflow.serving.PredictResponse",
    )
)


def call(number: int, kind: str, *, pads: Sequence[str] = ("",), act: Act = "") -> Question:
    """Return a call with a row for each of some pads."""
    rows = [Row(number=number, pad=pad, act=act) for pad in pads]
    request = (_predict_request if kind == PREDICT else _infer_request)(number, rows)
    read = {INFER: _read_infer, STREAM_INFER: _read_stream, PREDICT: _read_predict}[kind]
    return Question(number, request, tuple(map(right_answer, rows)), kind, read)


def reply_of(code: int, text: str, body: bytes, trailers: Mapping[str, str]) -> Reply:
    """Return the answer to a unary call as if it had come over HTTP."""
    status = status_of(code)
    if code == Code.OK:
        return Reply(200, body)
    if code == Code.INTERNAL:
        status = _meaning(text, among=_INTERNAL_ERRORS, otherwise=status_of(Code.UNKNOWN))
    elif code == Code.RESOURCE_EXHAUSTED:
        status = 413
    pushback_ms = trailers.get("grpc-retry-pushback-ms")
    retry_after_s = None if pushback_ms is None else math.ceil(int(pushback_ms) / 1000)
    return Reply(status, text.encode(), retry_after_s=retry_after_s)


def reply_in_stream(body: bytes) -> Reply:
    """Return one answer of a stream as if it had come over HTTP; an error has no time for a retry there."""
    try:
        error = _Stream.FromString(body).error_message
    except DecodeError:
        error = ""  # No question has this answer.
    if not error:
        return Reply(200, body)
    return Reply(_meaning(error, among=_ERRORS, otherwise=_UNKNOWN), error.encode(), retry_after_s=0)


def _meaning(text: str, *, among: Mapping[int, "re.Pattern[str]"], otherwise: int) -> int:
    return next((status for status, pattern in among.items() if pattern.search(text)), otherwise)


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    values = [getattr(row, name) for row in rows]
    return values if name == "number" else [value.encode() for value in values]


def _infer_request(number: int, rows: Sequence[Row]) -> bytes:
    request: Any = make("inference.ModelInferRequest", model_name=_MODEL, id=str(number))
    for name, (datatype, field, _, _) in _FIELDS.items():
        tensor = request.inputs.add(name=name, datatype=datatype, shape=[len(rows)])
        getattr(tensor.contents, field).extend(_values(rows, name))
    written: bytes = request.SerializeToString()
    return written


def _predict_request(number: int, rows: Sequence[Row]) -> bytes:
    request: Any = make("tensorflow.serving.PredictRequest", model_spec={"name": _MODEL})
    for name, (_, _, dtype, field) in _FIELDS.items():
        tensor = request.inputs[name]
        tensor.dtype = dtype
        tensor.tensor_shape.dim.add(size=len(rows))
        getattr(tensor, field).extend(_values(rows, name))
    written: bytes = request.SerializeToString()
    return written


def _read_infer(body: bytes) -> tuple[str, ...]:
    return _outputs(_parsed(_Infer, body))


def _read_stream(body: bytes) -> tuple[str, ...]:
    return _outputs(_parsed(_Stream, body).infer_response)


def _outputs(response: Any) -> tuple[str, ...]:
    [output] = response.outputs
    return _texts(output.contents.bytes_contents)


def _read_predict(body: bytes) -> tuple[str, ...]:
    [output] = _parsed(_Predict, body).outputs.values()
    return _texts(output.string_val)


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise ValueError(str(error)) from error


def _texts(values: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(value.decode() for value in values)
