"""The document: APIs at their own routes, and as models of other protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.pages.openapi.bodies import Schema, body_of
from uncork_gateway.pages.openapi.models import TAGS, paths_of_models
from uncork_gateway.pages.openapi.replies import error_schemas, responses_of
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

_TIMEOUT = {
    "name": "X-Request-Timeout-Ms",
    "in": "header",
    "description": "How long the client waits, in milliseconds. It can shorten the deadline, not extend it.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}
_KEYS: Schema = {
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "Bearer": {"type": "http", "scheme": "bearer"},
}
_ABOUT_ERRORS = "API routes return errors as problem documents (RFC 9457)"


def make_openapi(
    service: ServiceDescription, models: Mapping[str, Model], *, version: str, wants_keys: bool = False
) -> Schema:
    """Return the document of a service and its models; with ``wants_keys`` clients need an API key."""
    schemas = error_schemas(service.apis)
    paths = {api.route: {"post": _operation(api, service.name, schemas)} for api in service.apis}
    of_models = paths_of_models(models)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": service.name,
            "version": version,
            "description": f"{service.doc}\n\n{_about_errors(service.apis)}".lstrip(),
        },
        "tags": [
            {"name": service.name, "description": "The service's APIs"},
            *(TAGS if of_models else []),
        ],
        "paths": paths | of_models,
        "components": {"schemas": schemas, **({"securitySchemes": _KEYS} if wants_keys else {})},
        **({"security": [{name: []} for name in _KEYS]} if wants_keys else {}),
    }


def _about_errors(apis: Sequence[ApiDescription]) -> str:
    routes = ", ".join(api.route for api in apis if api.errors == "openai")
    return f"{_ABOUT_ERRORS}; {routes} in OpenAI's format." if routes else f"{_ABOUT_ERRORS}."


def _operation(api: ApiDescription, tag: str, schemas: Schema) -> Schema:
    row = _hoisted(api.name, api.schema, schemas)
    summary, _, text = api.doc.partition("\n")
    return {
        "operationId": api.name,
        "tags": [tag],
        **({"summary": summary} if summary else {}),
        **({"description": text.strip()} if text.strip() else {}),
        "parameters": [_TIMEOUT],
        "requestBody": body_of(api, row),
        "responses": responses_of(api),
    }


def _hoisted(api: str, schema: Schema, schemas: Schema) -> Schema:
    """Move a schema's definitions to the components, prefixed by the API's name, and return the rest."""
    definitions = schema.get("$defs", {})
    names = {f"#/$defs/{name}": f"#/components/schemas/{api}.{name}" for name in definitions}
    for name, definition in definitions.items():
        schemas[f"{api}.{name}"] = _referring(definition, names)
    renamed: Schema = _referring({key: value for key, value in schema.items() if key != "$defs"}, names)
    return renamed


def _referring(value: Any, names: Mapping[str, str]) -> Any:
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
