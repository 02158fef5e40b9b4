"""What the service serves, as an OpenAPI document (3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uncork_gateway.codecs import make_codec
from uncork_workers.description import JSON, ApiDescription, ServiceDescription

Schema = dict[str, Any]

_PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
_PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what was wrong, and what is accepted"},
    },
}
_ERRORS = {
    "400": "Malformed input; only this request fails.",
    "401": "The server wants an API key, and none that it knows came.",
    "408": "The request came too slowly.",
    "413": "The body is over the limit.",
    "414": "The target is too long.",
    "415": "The content type is not one that the api takes, or the encoding of the body is not known.",
    "431": "The header section is too large.",
    "500": "The handler failed on this request; the answer has an id, under which the log has more.",
    "502": "The worker died, and running the request again failed or was not allowed.",
    "503": "Refused: overloaded, no worker is ready, or the server is stopping.",
    "504": "The batch ran past its timeout, or the time in X-Request-Timeout-Ms passed.",
}
_TIMEOUT = {
    "name": "X-Request-Timeout-Ms",
    "in": "header",
    "description": "How long the client waits, in milliseconds; it can only bring the deadline forward.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}
_REPLY_HEADERS = {
    "X-Batch-Id": {
        "description": "The batch that the request was in.",
        "required": True,
        "schema": {"type": "string"},
    },
    "X-Batch-Size": {
        "description": "Rows in that batch.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "Server-Timing": {
        "description": "Where the time went, in milliseconds: queue, batch.",
        "required": True,
        "schema": {"type": "string"},
    },
}
# Those that some errors carry beside content type and length.
_ERROR_HEADERS: Mapping[str, Schema] = {
    "401": {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    "415": {
        "Accept-Encoding": {
            "description": "How bodies may be encoded, if that was what was wrong.",
            "schema": {"type": "string"},
        }
    },
    "503": {
        "Retry-After": {
            "description": "Seconds.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    },
}
_KEYS: Schema = {
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "Bearer": {"type": "http", "scheme": "bearer"},
}
_REFUSED = "The handler refused this request, with a status of its choice."
_OWN: Schema = {
    "description": "What the handler answers: JSON, text, bytes, or what its type says.",
    "headers": _REPLY_HEADERS,
    "content": {"*/*": {}},
}
_STREAM: Schema = {
    "description": "Sent piece by piece while it is made: text, bytes, lines of JSON, or what its type says. "
    "If it ends before its last chunk, the handler failed.",
    "headers": _REPLY_HEADERS,
    "content": {"*/*": {}},
}
# Kinds of input whose JSON may be one row, or many with a leading axis.
_ONE_OR_MANY = ("ndarray", "dataframe")


def make_openapi(service: ServiceDescription, *, version: str, wants_keys: bool = False) -> Schema:
    """The document for the apis of a service, at their own routes.

    ``wants_keys`` says that a client needs an API key.
    """
    schemas: Schema = {"Problem": _PROBLEM}
    paths = {api.route: {"post": _operation(api, schemas)} for api in service.apis}
    return {
        "openapi": "3.1.0",
        "info": {"title": service.name, "version": version},
        "paths": paths,
        "components": {"schemas": schemas, **({"securitySchemes": _KEYS} if wants_keys else {})},
        **({"security": [{name: []} for name in _KEYS]} if wants_keys else {}),
    }


def _operation(api: ApiDescription, schemas: Schema) -> Schema:
    row = _hoisted(api.name, api.schema, schemas)
    summary, _, text = api.doc.partition("\n")
    return {
        "operationId": api.name,
        **({"summary": summary} if summary else {}),
        **({"description": text.strip()} if text.strip() else {}),
        "parameters": [_TIMEOUT],
        "requestBody": {"required": True, "content": _body(api, row)},
        "responses": _responses(api),
    }


def _responses(api: ApiDescription) -> Schema:
    own = {"description": "Another status that the handler has chosen.", "content": {"*/*": {}}}
    return {
        "200": _STREAM if api.streams else _OWN if api.answers_each else _results(api.offers),
        **{status: _error(status, text) for status, text in _ERRORS.items()},
        "default": own if api.answers_each or api.streams else _error("default", _REFUSED),
    }


def _body(api: ApiDescription, row: Schema) -> Schema:
    content: Schema = {}
    for media_type in api.input.get("accepts") or make_codec(api.input).accepts:
        if media_type == JSON:
            many = {"type": "array", "items": row, "minItems": 1}
            content[JSON] = {"schema": {"anyOf": [row, many]} if api.input["kind"] in _ONE_OR_MANY else row}
        else:
            content[media_type if "/" in media_type else "*/*"] = {}
    return content


def _results(offers: Sequence[str]) -> Schema:
    return {
        "description": "One result, or one for each row.",
        "headers": _REPLY_HEADERS,
        "content": {media_type: {"schema": {}} if media_type == JSON else {} for media_type in offers},
    }


def _error(status: str, description: str) -> Schema:
    headers = _ERROR_HEADERS.get(status)
    return {
        "description": description,
        **({"headers": headers} if headers else {}),
        "content": {"application/problem+json": {"schema": _PROBLEM_REF}},
    }


def _hoisted(api: str, schema: Schema, schemas: Schema) -> Schema:
    """A schema whose own definitions have become components, named after the api."""
    definitions = schema.get("$defs", {})
    names = {f"#/$defs/{name}": f"#/components/schemas/{api}.{name}" for name in definitions}
    for name, definition in definitions.items():
        schemas[f"{api}.{name}"] = _referring(definition, names)
    renamed: Schema = _referring({key: value for key, value in schema.items() if key != "$defs"}, names)
    return renamed


def _referring(value: Any, names: Mapping[str, str]) -> Any:
    """The same with other references."""
    if isinstance(value, dict):
        return {
            key: names.get(inner, inner)
            if key == "$ref" and isinstance(inner, str)
            else _referring(inner, names)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_referring(inner, names) for inner in value]
    return value
