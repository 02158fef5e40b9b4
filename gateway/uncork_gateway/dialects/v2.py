"""The dialect of the Open Inference Protocol V2."""

from collections.abc import Callable, Sequence

from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.dialects.base import JSON, HandlerResult, Reply, require_rows
from uncork_gateway.errors import BadRequest, GatewayError
from uncork_gateway.headers import Header, header_lines
from uncork_gateway.protocols.raw_json import quoted, written
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.tensor_rows import (
    OUTPUT,
    json_rows,
    output_tensor,
    row_texts,
    tensors_from_rows,
)
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.v2 import InferRequest, parse_request
from uncork_gateway.protocols.v2_message import JSON_LENGTH, write
from uncork_gateway.protocols.wire import Content, Unmergeable
from uncork_workers.wire.messages import RowPath, json_path

VERSION = "1"
"""The version of every model."""


class V2:
    """Rows as tensors, one input tensor or one for each field of a row.

    Args:
        codec: reads the API's input.
        model: the API's name for clients.
        takes_objects: whether a row may be an object, so that a request may have several inputs.
        saw: called with all output tensors of each answer.
    """

    def __init__(
        self, codec: Codec, *, model: str, takes_objects: bool, saw: Callable[[Sequence[Tensor]], object]
    ) -> None:
        self._codec = codec
        self._model = model
        self._takes_objects = takes_objects
        self._saw = saw

    def keep(self, headers: Sequence[Header], target: bytes) -> tuple[Header, ...]:
        return tuple((JSON_LENGTH, value) for name, value in headers if name.lower() == JSON_LENGTH)

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        """Read rows from the only input, or rows that are objects with a value from each input."""
        try:
            request = parse_request(Content(body, headers))
        except Unmergeable as error:
            raise BadRequest(str(error)) from None
        if request.classified:
            raise BadRequest(
                f"output {request.classified[0]!r}: classification is not supported; request the output "
                "without it (class_count in Triton's clients) and rank the values in the client"
            )
        if len(request.inputs) > 1:
            marshalled = self._codec.marshal(self._objects(request.inputs))
        else:
            marshalled = self._codec.marshal_tensor(request.inputs[0])
        return marshalled._replace(note=request, raw=request.wants_binary(OUTPUT), locate=_in_inputs)

    def write(self, reply: HandlerResult, asked: Marshalled, *, batch_id: str) -> Reply:
        """Write results as output tensors; only the requested ones, if the request names any."""
        require_rows(reply)
        request: InferRequest = asked.note
        if reply.form is None:
            outputs = tensors_from_rows(row_texts(reply.body), binary=request.wants_binary)
        else:
            outputs = [output_tensor(reply.body, reply.form, rows=asked.rows, binary=asked.raw)]
        self._saw(outputs)
        if request.wanted:
            outputs = _chosen(outputs, request.wanted)
        members = {"model_name": quoted(self._model), "model_version": quoted(VERSION)}
        content = write(members, request.id, b"outputs", outputs)
        return Reply(header_lines(content.headers), content.body)

    def error(self, error: GatewayError) -> Reply:
        return Reply(JSON, error_body(str(error)))

    def _objects(self, inputs: Sequence[Tensor]) -> list[bytes]:
        names = [tensor.name for tensor in inputs]
        if not self._takes_objects:
            raise BadRequest(f"this model takes one input, got {', '.join(map(repr, names))}")
        if len(set(names)) < len(names):
            raise BadRequest(f"input names must be unique, got {', '.join(map(repr, names))}")
        columns = zip(*[json_rows(tensor) for tensor in inputs], strict=True)
        return [written(dict(zip(names, values, strict=True))) for values in columns]


def _in_inputs(asked: Marshalled, place: RowPath) -> str:
    """Return the path of a value in the data of an input."""
    inputs: list[Tensor] = asked.note.inputs
    number, path = 0, place.path
    if len(inputs) > 1:
        names = [tensor.name for tensor in inputs]
        if not path or path[0] not in names:
            return f"row {place.row + 1} of {json_path('inputs')}"
        number, path = names.index(str(path[0])), path[1:]
    shape = inputs[number].shape
    if inputs[number].form == "nested":
        return json_path("inputs", number, "data", place.row, *path)
    if inputs[number].form == "binary" or len(path) + 1 != len(shape):
        return f"row {place.row + 1} of {json_path('inputs', number)}"
    at = 0
    for index, length in zip((place.row, *path), shape, strict=True):
        at = at * length + int(index)
    return json_path("inputs", number, "data", at)


def _chosen(outputs: Sequence[Tensor], wanted: dict[str, bool]) -> list[Tensor]:
    by_name = {output.name: output for output in outputs}
    for name in wanted:
        if name not in by_name:
            raise BadRequest(f"unknown output {name!r}; available outputs: {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in wanted]
