"""What bodies of requests look like, with examples that people can send as they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import msgspec

from uncork_gateway.codecs import make_codec
from uncork_workers.wire.schema import JSON, ApiDescription

Schema = dict[str, Any]

_BINARY: Schema = {"type": "string", "format": "binary"}
_FILE = "file"
_MULTIPART = "multipart/form-data"
# Kinds of input whose JSON may be one row, or many with a leading axis.
_ONE_OR_MANY = ("ndarray", "dataframe")
_KINDS = {
    "ndarray": "One row, or a list of rows: as JSON, or as a file of NumPy's.",
    "dataframe": "A table: CSV with a header, or JSON. That may be one row, a list of rows, an object of "
    "columns, or one of `columns` and `data`.",
    "text": "One text.",
    "json": "One JSON value.",
}


def body_of(api: ApiDescription, row: Schema) -> Schema:
    """The body of requests at the api's own route; ``row`` is the schema of a row."""
    describes = _describe_raw if api.input["kind"] == "raw" else _describe_rows
    accepts = api.input.get("accepts") or make_codec(api.input).accepts
    description = _KINDS.get(api.input["kind"])
    return {
        "required": True,
        **({"description": description} if description else {}),
        "content": {
            media_type if "/" in media_type else "*/*": describes(api, media_type, row)
            for media_type in accepts
        },
    }


def media_content(media_type: str, *, schema: Schema) -> Schema:
    """What is in a body of a type: by ``schema`` if it is JSON, else text or bytes."""
    if media_type == JSON:
        return {"schema": schema}
    if media_type.startswith("text/") or media_type == "application/csv":
        return {"schema": {"type": "string"}}
    return {"schema": _BINARY}


def example_of(api: ApiDescription) -> Any:
    """The example, a row; of an api that has none, :data:`msgspec.UNSET`."""
    return msgspec.json.decode(api.example) if api.example else msgspec.UNSET


def _describe_rows(api: ApiDescription, media_type: str, row: Schema) -> Schema:
    """A body of one of the types in which rows come."""
    several = api.input["kind"] in _ONE_OR_MANY
    many = {"type": "array", "items": row, "minItems": 1}
    content = media_content(media_type, schema={"anyOf": [row, many]} if several else row)
    example = example_of(api)
    if example is msgspec.UNSET or content["schema"] is _BINARY:
        return content
    write: Callable[[Any], Any] = _csv if media_type.endswith("csv") else _as_it_is
    if not several:
        return {**content, "example": write(example)}
    rows = {"one row": write(example), "two rows": write([example] * 2)}
    return {**content, "examples": {name: {"value": value} for name, value in rows.items()}}


def _describe_raw(api: ApiDescription, media_type: str, row: Schema) -> Schema:
    """A body that the worker reads: a file, the parts of a form, or what the example is."""
    if media_type == _MULTIPART:
        names = list(row.get("properties", ())) or [_FILE]
        form = {"type": "object", "properties": dict.fromkeys(names, _BINARY), "required": names}
        return {"schema": form}
    content = media_content(media_type, schema=row)
    if media_type == api.example_type:
        content["example"] = example_of(api)
    return content


def _as_it_is(value: Any) -> Any:
    return value


def _csv(rows: dict[str, Any] | list[dict[str, Any]]) -> str:
    """A header, and a line for each row."""
    rows = rows if isinstance(rows, list) else [rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_field(value) for value in row.values()] for row in rows)
    return text.getvalue()


def _field(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
