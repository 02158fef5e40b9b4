"""The tensors of an API: inputs from the schema of a row, outputs learned from results."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS, Inputs
from uncork_gateway.protocols.tensor_rows import OUTPUT, output_specs
from uncork_gateway.protocols.tensors import Tensor, TensorSpec
from uncork_workers.wire.schema import KINDS_WITH_FIELDS, ApiDescription
from uncork_workers.wire.tensors import MAX_AXES

Schema = Mapping[str, Any]

INPUT = "input-0"
"""The name of the only tensor of rows that are not objects."""

_OF_DTYPES = {
    "bool": "BOOL",
    "str": "BYTES",
    **{f"{kind}int{bits}": f"{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
_WIDEST = "FP64"
"""For dtypes that V2 lacks."""
_OF_TYPES = {"boolean": "BOOL", "integer": "INT64", "number": "FP64", "string": "BYTES"}
_OF_VALUES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_ANYTHING = "BYTES"
_ANY = "anything"
# Keywords of a schema that allows any value.
_SAYS_NOTHING = {"title", "description", "default", "examples"}
_OK = 200
# Reading the JSON of a result blocks the event loop for about 20 ms per megabyte.
_MOST_BYTES = 2**20
_MOST_OUTPUTS = 256


def inputs_of(api: ApiDescription) -> list[TensorSpec]:
    """Return the input tensors of an API, one for each field if rows are objects.

    Empty if tensors cannot express a row, or the API accepts no tensors.
    """
    kind, schema = api.input["kind"], api.schema
    if kind == "raw":
        return []
    if kind == "ndarray":
        return [_array_spec(api.input.get("name", INPUT), api.input)]
    if "tensors" in api.input:
        return [_array_spec(name, each) for name, each in api.input["tensors"].items()]
    definitions = schema.get("$defs", {})
    specs = [_spec(name, field, definitions) for name, field in (_fields(api) or {INPUT: schema}).items()]
    return [spec for spec in specs if spec is not None] if None not in specs else []


def _array_spec(name: str, described: Mapping[str, Any]) -> TensorSpec:
    """Return the tensor of an input that the worker describes by dtype and shape."""
    shape = tuple(-1 if length is None else length for length in described["shape"])
    return TensorSpec(name, _OF_DTYPES.get(described["dtype"], _WIDEST), shape)


def row_inputs(api: ApiDescription) -> Inputs:
    """Return the form of a row, for protocols whose rows are tensors or named values."""
    definitions = api.schema.get("$defs", {})
    fields = _fields(api)
    types = {name: _types(field, definitions) for name, field in (fields or {"": api.schema}).items()}
    if fields is None and types[""] & {"object", _ANY}:
        return ANY_INPUTS
    others = _plain(api.schema, definitions).get("additionalProperties")
    return Inputs(
        rows="values" if fields is None else "objects",
        single=frozenset(name for name, each in types.items() if each <= _OF_TYPES.keys()),
        all_single=isinstance(others, dict) and _types(others, definitions) <= _OF_TYPES.keys(),
        texts=frozenset(name for name, each in types.items() if each == {"string"}),
    )


def _fields(api: ApiDescription) -> dict[str, Schema] | None:
    """Return the schemas of a row's fields if rows are objects; else None."""
    row = _plain(api.schema, api.schema.get("$defs", {}))
    if api.input["kind"] not in KINDS_WITH_FIELDS or _type(row) != "object":
        return None
    return dict(row.get("properties", {}))


def _spec(name: str, schema: Schema, definitions: Mapping[str, Schema]) -> TensorSpec | None:
    """Describe a value, or nested lists of values, as a tensor; return None for anything else."""
    shape: list[int] = []
    schema = _plain(schema, definitions)
    while _type(schema) == "array" and isinstance(items := schema.get("items"), dict):
        if len(shape) == MAX_AXES:
            return None  # a recursive schema
        least, most = schema.get("minItems"), schema.get("maxItems", -1)
        shape.append(most if least == most else -1)
        schema = _plain(items, definitions)
    datatype = _ANYTHING if schema.keys() <= _SAYS_NOTHING else _OF_TYPES.get(_type(schema))
    return None if datatype is None else TensorSpec(name, datatype, tuple(shape))


def _plain(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Resolve a reference, and reduce a choice between one schema and null to that schema."""
    choices = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        [schema] = choices
    reference = schema.get("$ref", "")
    return definitions.get(reference.removeprefix("#/$defs/"), schema) if reference else schema


def _type(schema: Schema) -> str:
    """Return the first type of a schema, or the one type of its values, other than null; else empty."""
    said = schema.get("type", "")
    if not said and "enum" in schema:
        types = _types(schema, {})
        return types.pop() if len(types) == 1 else ""
    return next((one for one in said if one != "null"), "") if isinstance(said, list) else str(said)


def _types(schema: Schema, definitions: Mapping[str, Schema]) -> set[str]:
    """Return all types that a value may have, except null."""
    schema = _plain(schema, definitions)
    if "anyOf" in schema:
        return set().union(*[_types(one, definitions) for one in schema["anyOf"]]) - {"null"}
    if "enum" in schema:
        return {_OF_VALUES.get(type(value), _ANY) for value in schema["enum"] if value is not None}
    said = schema.get("type", _ANY)
    return set(said if isinstance(said, list) else [said]) - {"null"}


class Outputs:
    """The output tensors that V2 clients of an API receive.

    They describe the warm-up or the first response, and every V2 response since. An axis of varying length is
    -1. An output is dropped for good once a response lacks it, or has another datatype or number of axes for
    it, which the protocols cannot describe.

    Names of outputs may be data of a client, such as ``{"a@b.example": 0.5}``. They are learned from two
    different results that have them in common, or from the warm-up; from results of more than 256 outputs,
    nothing is learned.

    Attributes:
        warm_up: the result for the author's example, as one row; None if there is none. Results of clients
            are never kept.
    """

    def __init__(self) -> None:
        self._known: tuple[TensorSpec, ...] | None = None
        self._named: tuple[int, tuple[TensorSpec, ...]] | None = None
        """The hash of the first result with names, and its outputs, until there is a different one."""
        self.warm_up: HandlerResult | None = None

    def known(self) -> tuple[TensorSpec, ...]:
        """Return the output tensors; empty before they are learned."""
        return self._known or ()

    def saw(self, tensors: Sequence[Tensor]) -> None:
        """Learn from a response's output tensors, but no names."""
        seen = tuple([TensorSpec(tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in tensors])
        if seen != self._known and (self._known is not None or not _has_names(seen)):
            self._learn(seen)

    def saw_warm_up(self, result: HandlerResult) -> None:
        """Learn from the result of a worker's warm-up; keep the first such result."""
        if self.warm_up is None:
            self.warm_up = result
        if self._known is None and _is_row(result):
            self._known = _outputs_of(result)

    def saw_results(self, replies: Sequence[HandlerResult]) -> None:
        """Learn from the first successful result, or from two if it has names, unless outputs are known."""
        if self._known is not None:
            return
        first, before = next(filter(_is_row, replies), None), self._named
        if first is None or (before is not None and before[0] == hash(first.body)):
            return
        seen = _outputs_of(first)
        if seen is None:
            return
        if len(seen) > _MOST_OUTPUTS:
            seen = ()
        elif before is None and _has_names(seen):
            self._named = hash(first.body), seen
            return
        if before is not None:
            self._known = before[1]
        self._named = None
        self._learn(seen)

    def _learn(self, seen: tuple[TensorSpec, ...]) -> None:
        if self._known is None:
            self._known = seen
            return
        by_name = {output.name: output for output in seen}
        pairs = [(one, by_name[one.name]) for one in self._known if one.name in by_name]
        self._known = tuple([_common(*pair) for pair in pairs if _are_alike(*pair)])


def _is_row(reply: HandlerResult) -> bool:
    return reply.status == _OK and not reply.content_type


def _outputs_of(result: HandlerResult) -> tuple[TensorSpec, ...] | None:
    """Return the outputs of rows; None if they are too large or malformed: a V2 client gets the error."""
    if result.form is None and not 0 < len(result.body) <= _MOST_BYTES:
        return None
    try:
        return output_specs(result.body, result.form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _has_names(outputs: Sequence[TensorSpec]) -> bool:
    return [one.name for one in outputs] != [OUTPUT]


def _are_alike(one: TensorSpec, other: TensorSpec) -> bool:
    return one.datatype == other.datatype and len(one.shape) == len(other.shape)


def _common(one: TensorSpec, other: TensorSpec) -> TensorSpec:
    lengths = zip(one.shape, other.shape, strict=True)
    return one._replace(shape=tuple([length if length == another else -1 for length, another in lengths]))
