"""Request bodies in the OpenAPI document, with examples that can be sent unchanged."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from uncork_gateway.codecs import make_codec
from uncork_workers.wire.groups import MAX_VALUE_BYTES
from uncork_workers.wire.schema import JSON, MULTIPART, ApiDescription

Schema = dict[str, Any]

_BINARY: Schema = {"type": "string", "format": "binary"}


def body_of(api: ApiDescription, row: Schema) -> Schema:
    """Describe the body of requests at the API's own route; ``row`` is the schema of a row."""
    describes = _describe_raw if api.input["kind"] == "raw" else _describe_rows
    codec = make_codec(api.input)
    accepts = api.input.get("accepts") or codec.accepts
    return {
        "required": True,
        **({"description": codec.summary} if codec.summary else {}),
        "content": {
            media_type if "/" in media_type else "*/*": describes(api, media_type, row)
            for media_type in accepts
        },
    }


def with_fields(row: Schema, fields: Sequence[str]) -> Schema:
    """Return the schema of rows that must have the fields by which an API groups requests."""
    if not fields:
        return row
    value = {
        "type": ["string", "number", "boolean"],
        "maxLength": MAX_VALUE_BYTES,
        "description": "Rows share a batch only if they have the same value.",
    }
    known, required = row.get("properties", {}), row.get("required", ())
    added = {
        "properties": {**{name: value for name in fields if name not in known}, **known},
        "required": [*required, *[name for name in fields if name not in required]],
    }
    if row.get("type", "object") == "object" and "$ref" not in row and "anyOf" not in row:
        return {"type": "object", **row, **added}
    return {"allOf": [row, {"type": "object", **added}]}


def media_content(media_type: str, *, schema: Schema) -> Schema:
    """Describe the content of a media type: for JSON by ``schema``, else as text or bytes."""
    if media_type == JSON:
        return {"schema": schema}
    if media_type.startswith("text/") or media_type == "application/csv":
        return {"schema": {"type": "string"}}
    return {"schema": _BINARY}


def example_of(api: ApiDescription) -> Any:
    """Return an API's example row; :data:`msgspec.UNSET` if it has none."""
    return msgspec.json.decode(api.example) if api.example else msgspec.UNSET


def form_fields(schema: Schema) -> list[str]:
    """Return the field names of a multipart form; one field ``file`` if the schema names none."""
    return list(schema.get("properties", ())) or ["file"]


def _describe_rows(api: ApiDescription, media_type: str, row: Schema) -> Schema:
    several = make_codec(api.input).one_or_many
    many = {"type": "array", "items": row, "minItems": 1}
    content = media_content(media_type, schema={"anyOf": [row, many]} if several else row)
    example = example_of(api)
    if example is msgspec.UNSET or content["schema"] is _BINARY:
        return content
    if not several:
        return {**content, "example": example}
    rows = {"one row": example, "two rows": [example] * 2}
    is_csv = media_type.endswith("csv")
    return {
        **content,
        "examples": {name: {"value": _csv(value) if is_csv else value} for name, value in rows.items()},
    }


def _describe_raw(api: ApiDescription, media_type: str, row: Schema) -> Schema:
    """Describe a body that only the worker reads: a form, or any file."""
    if media_type == MULTIPART:
        names = form_fields(row)
        form = {"type": "object", "properties": dict.fromkeys(names, _BINARY), "required": names}
        return {"schema": form}
    content = media_content(media_type, schema=row)
    if media_type == api.example_type:
        content["example"] = example_of(api)
    return content


def csv_text(names: Iterable[Any], rows: Iterable[Iterable[Any]], *, line_end: str = "\n") -> str:
    """Return CSV text: a header, and a line for each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=line_end)
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _csv(rows: dict[str, Any] | list[dict[str, Any]]) -> str:
    rows = rows if isinstance(rows, list) else [rows]
    return csv_text(rows[0], [map(_field, row.values()) for row in rows])


def _field(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
