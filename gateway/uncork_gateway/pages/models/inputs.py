"""The input tensors of an api, from what its adapter says of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uncork_gateway.protocols.tensors import MAX_AXES, TensorSpec
from uncork_workers.wire.schema import KINDS_WITH_FIELDS, ApiDescription

Schema = Mapping[str, Any]

_INPUT = "input-0"
_OF_DTYPES = {
    "bool": "BOOL",
    **{f"{kind}int{bits}": f"{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
_WIDEST = "FP64"
"""Of a dtype for which V2 has no name."""
_OF_TYPES = {"boolean": "BOOL", "integer": "INT64", "number": "FP64", "string": "BYTES"}
_ANYTHING = "BYTES"
# Of a schema that allows any value.
_SAYS_NOTHING = {"title", "description", "default", "examples"}


def inputs_of(api: ApiDescription) -> list[TensorSpec]:
    """Return the inputs of a request, one for each field where rows are objects.

    Empty if tensors cannot say what a row is, or no tensor reaches the api.
    """
    kind, schema = api.input["kind"], api.schema
    if kind == "raw":
        return []
    if kind == "ndarray":
        shape = tuple(-1 if length is None else length for length in api.input["shape"])
        return [TensorSpec(_INPUT, _OF_DTYPES.get(api.input["dtype"], _WIDEST), shape)]
    definitions = schema.get("$defs", {})
    row = _plain(schema, definitions)
    if kind not in KINDS_WITH_FIELDS or not _is_object(row):
        spec = _spec(_INPUT, row, definitions)
        return [] if spec is None else [spec]
    specs = [_spec(name, field, definitions) for name, field in row.get("properties", {}).items()]
    # A single tensor is a row of its own, not an object of one field.
    return [spec for spec in specs if spec is not None] if len(specs) > 1 and None not in specs else []


def _spec(name: str, schema: Schema, definitions: Mapping[str, Schema]) -> TensorSpec | None:
    """A value, or lists of values, as a tensor; None if it is something else."""
    shape: list[int] = []
    schema = _plain(schema, definitions)
    while _type(schema) == "array" and "items" in schema:
        if len(shape) == MAX_AXES:
            return None  # lists of lists without end
        least, most = schema.get("minItems"), schema.get("maxItems", -1)
        shape.append(most if least == most else -1)
        schema = _plain(schema["items"], definitions)
    datatype = _ANYTHING if schema.keys() <= _SAYS_NOTHING else _OF_TYPES.get(_type(schema))
    return None if datatype is None else TensorSpec(name, datatype, tuple(shape))


def _plain(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The schema that a reference, or a choice between one and null, comes to."""
    choices = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        [schema] = choices
    reference = schema.get("$ref", "")
    return definitions.get(reference.removeprefix("#/$defs/"), schema) if reference else schema


def _is_object(schema: Schema) -> bool:
    return _type(schema) == "object"


def _type(schema: Schema) -> str:
    """The type of a schema, the first if there are several; empty if it says none."""
    said = schema.get("type", "")
    return next((one for one in said if one != "null"), "") if isinstance(said, list) else str(said)
