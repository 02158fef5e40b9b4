"""The input tensors of an API, derived from the schema of a row."""

from collections.abc import Mapping
from typing import Any

from uncork_gateway.dialects.inputs import ANY_INPUTS, Inputs
from uncork_gateway.protocols.tensors import TensorSpec
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
    while _type(schema) == "array" and "items" in schema:
        if len(shape) == MAX_AXES:
            return None  # a recursive schema
        least, most = schema.get("minItems"), schema.get("maxItems", -1)
        shape.append(most if least == most else -1)
        schema = _plain(schema["items"], definitions)
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
    """Return the first type of a schema other than null; empty if it has none."""
    said = schema.get("type", "")
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
