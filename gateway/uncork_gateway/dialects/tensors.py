"""Input and output tensors of our APIs, for all dialects that have tensors."""

from collections.abc import Callable, Collection, Sequence

import msgspec

from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.dialects.base import HandlerResult, require_rows
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_json import objects
from uncork_gateway.protocols.tensor_rows import (
    OUTPUT,
    json_rows,
    output_tensor,
    row_texts,
    tensors_from_rows,
)
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.versions import FIRST
from uncork_workers.wire.messages import RowPath, json_path


class TensorDialect:
    """A dialect whose rows are tensors.

    Args:
        codec: reads the API's input.
        model: the API's name for clients, and ``version`` its version.
        takes_objects: whether a row may be an object, so that a request may have several inputs.
        saw: called with all output tensors of each answer.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        model: str,
        version: str = FIRST,
        takes_objects: bool,
        saw: Callable[[Sequence[Tensor]], object],
    ) -> None:
        self._codec = codec
        self._model = model
        self._version = version
        self._takes_objects = takes_objects
        self._saw = saw


def marshal_inputs(inputs: Sequence[Tensor], codec: Codec, *, takes_objects: bool) -> Marshalled:
    """Read rows from the only input, or rows that are objects with a value from each input.

    Args:
        inputs: checked, with the same number of rows.
        codec: reads the API's input.
        takes_objects: whether a row may be an object, so that there may be several inputs.

    Raises:
        BadRequest: if the API does not accept the tensors.
    """
    if len(inputs) == 1:
        return codec.marshal_tensor(inputs[0])
    names = [tensor.name for tensor in inputs]
    if not takes_objects:
        raise BadRequest(f"this model takes one input, got {', '.join(map(repr, names))}")
    if len(set(names)) < len(names):
        raise BadRequest(f"input names must be unique, got {', '.join(map(repr, names))}")
    rows = list(zip(*[json_rows(tensor) for tensor in inputs], strict=True))
    return codec.marshal(objects(names, rows))


def without_values(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors without their data, for what must be remembered of a request."""
    return [msgspec.structs.replace(tensor, data=b"") for tensor in tensors]


def output_tensors(result: HandlerResult, *, rows: int, binary: Callable[[str], bool]) -> list[Tensor]:
    """Return the output tensors of a handler's result.

    Args:
        result: of a request whose ``raw`` was ``binary(OUTPUT)``.
        rows: of the request.
        binary: whether the client wants the tensor of a name in binary.

    Raises:
        HandlerFailed: if the result is not rows.
    """
    require_rows(result)
    if result.form is None:
        return tensors_from_rows(row_texts(result.body), binary=binary)
    return [output_tensor(result.body, result.form, rows=rows, binary=binary(OUTPUT))]


def chosen(outputs: list[Tensor], wanted: Collection[str]) -> list[Tensor]:
    """Return the outputs that the client wants, in its order; all if it names none.

    Raises:
        BadRequest: if there is no output of a name.
    """
    if not wanted:
        return outputs
    by_name = {output.name: output for output in outputs}
    for name in wanted:
        if name not in by_name:
            raise BadRequest(f"unknown output {name!r}; available outputs: {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in wanted]


def refuse_classification(outputs: Sequence[str]) -> None:
    """Raise BadRequest if the client wants the top classes of outputs."""
    if outputs:
        raise BadRequest(
            f"output {outputs[0]!r}: classification is not supported; request the output "
            "without it (class_count in Triton's clients) and rank the values in the client"
        )


def path_in_inputs(
    inputs: Sequence[Tensor], place: RowPath, *, values: Callable[[Tensor], Sequence[str]]
) -> str:
    """Return the path of a value in an input, or of its row if values have no path.

    Args:
        inputs: of the request.
        place: of the value, in the rows.
        values: returns the path from an input to the list of its values; empty if they are bytes.
    """
    number, path = 0, place.path
    if len(inputs) > 1:
        names = [tensor.name for tensor in inputs]
        if not path or path[0] not in names:
            return f"row {place.row + 1} of {json_path('inputs')}"
        number, path = names.index(str(path[0])), path[1:]
    listed, shape = values(inputs[number]), inputs[number].shape
    if inputs[number].form == "nested":
        return json_path("inputs", number, *listed, place.row, *path)
    if not listed or len(path) + 1 != len(shape):
        return f"row {place.row + 1} of {json_path('inputs', number)}"
    at = 0
    for index, length in zip((place.row, *path), shape, strict=True):
        at = at * length + int(index)
    return json_path("inputs", number, *listed, at)
