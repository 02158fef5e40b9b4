"""Input and output tensors of our APIs, for all dialects that have tensors."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass

import msgspec

from uncork_dispatcher.wording import plural
from uncork_gateway.codecs import Codec
from uncork_gateway.dialects.base import HandlerResult, require_rows
from uncork_gateway.dialects.inputs import Inputs
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols import tensor_rows
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.versions import FIRST
from uncork_workers.wire.messages import RowPath, json_path

# A handler gets parameters of its own for each row.
_MOST_PARAMETERS_BYTES = 8 * 2**20


@dataclass(eq=False)
class TensorDialect:
    """The common part of dialects whose rows are tensors.

    Attributes:
        model: the model name that clients see; ``version`` is its version.
        saw: receives the output tensors of each response.
    """

    codec: Codec
    _: KW_ONLY
    model: str
    version: str = FIRST
    inputs: Inputs
    saw: Callable[[Sequence[Tensor]], object]


def without_values(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors without their data, to remember only the inputs' names, types and shapes."""
    return [msgspec.structs.replace(tensor, data=b"") for tensor in tensors]


def output_tensors(result: HandlerResult, *, rows: int, binary: Callable[[str], bool]) -> list[Tensor]:
    """Return a handler's result as output tensors.

    Args:
        result: the result of one request.
        rows: the number of rows in the request.
        binary: returns True if the client wants the named tensor in binary.

    Raises:
        HandlerFailed: if the result is not rows.
    """
    require_rows(result)
    return tensor_rows.output_tensors(result.body, result.form, rows=rows, binary=binary)


def chosen(outputs: list[Tensor], wanted: Collection[str]) -> list[Tensor]:
    """Return the outputs that the client names, in its order; all if it names none.

    Raises:
        BadRequest: if no output has a given name.
    """
    if not wanted:
        return outputs
    by_name = {output.name: output for output in outputs}
    for name in wanted:
        if name not in by_name:
            raise BadRequest(f"unknown output {name!r}; available outputs: {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in wanted]


def check_parameters(parameters: bytes, rows: int) -> None:
    """Raise BadRequest if copies of a request's parameters for each row would take too much memory."""
    if len(parameters) * rows > _MOST_PARAMETERS_BYTES:
        raise BadRequest(
            f"the parameters have {len(parameters)} bytes for each of {plural(rows, 'row')}, more than "
            f"{_MOST_PARAMETERS_BYTES} in total; send shorter parameters, or fewer rows in one request"
        )


def refuse_classification(outputs: Sequence[str]) -> None:
    """Raise BadRequest if the client asks for the top classes of outputs."""
    if outputs:
        raise BadRequest(
            f"output {outputs[0]!r}: classification is not supported; request the output "
            "without it (class_count in Triton's clients) and rank the values in the client"
        )


def path_in_inputs(
    inputs: Sequence[Tensor], place: RowPath, *, values: Callable[[Tensor], Sequence[str]]
) -> str:
    """Return the path of a value in an input, or of its row if values have no path of their own.

    Args:
        inputs: the inputs of the request.
        place: the value's place in the rows.
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
