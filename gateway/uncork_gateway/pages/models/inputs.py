"""The input tensors of an API, derived from the schema of a row."""

from collections.abc import Mapping
from typing import Any

from uncork_gateway.protocols.tensors import MAX_AXES, TensorSpec
from uncork_workers.wire.schema import KINDS_WITH_FIELDS, ApiDescription

Schema = Mapping[str, Any]

INPUT = "input-0"
"""The name of the only tensor of rows that are not objects."""

_OF_DTYPES = {
    "bool": "BOOL",
    **{f"{kind}int{bits}": f"{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
_WIDEST = "FP64"
"""For dtypes that V2 lacks."""
_OF_TYPES = {"boolean": "BOOL", "integer": "INT64", "number": "FP64", "string": "BYTES"}
_ANYTHING = "BYTES"
# Keywords of a schema that allows any value.
_SAYS_NOTHING = {"title", "description", "default", "examples"}


def inputs_of(api: ApiDescription) -> list[TensorSpec]:
    """Return the inputs of a request, one for each field where rows are objects.

    Empty if tensors cannot express a row, or the API accepts none.
    """
    kind, schema = api.input["kind"], api.schema
    if kind == "raw":
        return []
    if kind == "ndarray":
        shape = tuple(-1 if length is None else length for length in api.input["shape"])
        return [TensorSpec(INPUT, _OF_DTYPES.get(api.input["dtype"], _WIDEST), shape)]
    definitions = schema.get("$defs", {})
    row = _plain(schema, definitions)
    if kind not in KINDS_WITH_FIELDS or _type(row) != "object":
        spec = _spec(INPUT, row, definitions)
        return [] if spec is None else [spec]
    specs = [_spec(name, field, definitions) for name, field in row.get("properties", {}).items()]
    # A single tensor is the row itself, not an object with one field.
    return [spec for spec in specs if spec is not None] if len(specs) > 1 and None not in specs else []


def _spec(name: str, schema: Schema, definitions: Mapping[str, Schema]) -> TensorSpec | None:
    """Describe a value, or nested lists of values, as a tensor; None for anything else."""
    shape: list[int] = []
    schema = _plain(schema, definitions)
    while _type(schema) == "array" and "items" in schema:
        if len(shape) == MAX_AXES:
            return None  # a recursive schema
        least, most = schema.get("minItems"), schema.get("maxItems", -1)
        shape.append(most if least == most else -1)
        schema = _plain(schema["items"], definitions)
    datatype = _ANYTHING if schema.keys() <= _SAYS_NOTHING else _OF_TYPES.get(_type(schema))
    return None if datatype is None else TensorSpec(name, datatype, tuple(shape))


def _plain(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Resolve a reference, and a choice between one schema and null."""
    choices = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        [schema] = choices
    reference = schema.get("$ref", "")
    return definitions.get(reference.removeprefix("#/$defs/"), schema) if reference else schema


def _type(schema: Schema) -> str:
    """Return the first type of a schema other than null; empty if it has none."""
    said = schema.get("type", "")
    return next((one for one in said if one != "null"), "") if isinstance(said, list) else str(said)
