"""The OpenAPI document: APIs at their own routes, and as models of other protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import TEXT_MODELS, Native
from uncork_gateway.headers import LONGEST_REQUEST_ID
from uncork_gateway.pages.models.metadata import ModelVersions
from uncork_gateway.pages.models.tensors import Outputs
from uncork_gateway.pages.openapi.bodies import Schema, body_of, with_fields
from uncork_gateway.pages.openapi.errors import ERROR, OPENAI_ERROR, PROBLEM, errors_of, other_errors
from uncork_gateway.pages.openapi.models import TAGS, paths_of_models
from uncork_gateway.pages.openapi.results import REPLY_HEADERS, any_other, example_result, result_of
from uncork_gateway.requests.classes import CLASS_HEADER
from uncork_gateway.settings import ServerSettings
from uncork_gateway.versions import ServiceName
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.groups import MAX_VALUE_BYTES
from uncork_workers.wire.schema import JSON, REQUEST_ID, ApiDescription, ServiceDescription

NO_VERSION = "unversioned"
"""The version of a service that has none; the document must name one."""

_TIMEOUT = {
    "name": "X-Request-Timeout-Ms",
    "in": "header",
    "description": "How long the client waits, in milliseconds. It can shorten the deadline, not extend it.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}
_REQUEST_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "description": "Names the request in its response and in logs. If it is missing, or other than 1 to "
    f"{LONGEST_REQUEST_ID} printable ASCII characters, the gateway makes one.",
    "schema": {"type": "string"},
}
_KEYS: Schema = {
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "Bearer": {"type": "http", "scheme": "bearer"},
}
_ABOUT_ERRORS = "API routes return errors as problem documents (RFC 9457)"
_SERVER = f"Served by Uncork {VERSION}."


def make_openapi(
    services: Mapping[str, ServiceDescription], models: ModelVersions, settings: ServerSettings
) -> Schema:
    """Return the OpenAPI document of named services and their models, for a gateway with these settings."""
    of_models = paths_of_models(models, settings)
    schemas: Schema = {"Problem": PROBLEM, **({"Error": ERROR} if of_models else {})}
    apis = [api for service in services.values() for api in service.apis]
    if any(api.errors == "openai" for api in apis):
        schemas["OpenAIError"] = OPENAI_ERROR
    only = next(iter(services.values())) if len(services) == 1 else None
    paths: Schema = {}
    for name, service in services.items():
        # Names of schemas cannot have the @ of a version.
        tag, prefix = (service.name, "") if only else (name, f"{name.replace('@', '.')}.")
        for api in service.apis:
            of = ServiceName.read(name)
            model = models.get(f"{of.name}.{api.name}", {}).get(of.version)
            outputs = None if model is None else model.outputs
            operation = _operation(api, tag, prefix, schemas, outputs, settings)
            paths |= {path: {"post": _of_task(api, path, operation)} for path in api.aliases}
            paths[api.route] = {"post": operation}
    wants_keys = settings.keys is not None
    return {
        "openapi": "3.1.0",
        "info": {
            "title": only.name if only else "Uncork",
            "version": (only.version if only else "") or NO_VERSION,
            "description": "\n\n".join(
                filter(None, [only.doc if only else "", _about_errors(apis), _SERVER])
            ),
        },
        "tags": [*_tags(services), *(TAGS if of_models else [])],
        "paths": paths | of_models,
        "components": {"schemas": schemas, **({"securitySchemes": _KEYS} if wants_keys else {})},
        **({"security": [{name: []} for name in _KEYS]} if wants_keys else {}),
    }


def _tags(services: Mapping[str, ServiceDescription]) -> list[Schema]:
    if len(services) == 1:
        [service] = services.values()
        return [{"name": service.name, "description": "The service's APIs"}]
    return [
        {"name": name, "description": service.doc or f"The APIs of {service.name}"}
        for name, service in services.items()
    ]


def _about_errors(apis: Sequence[ApiDescription]) -> str:
    routes = ", ".join(api.route for api in apis if api.errors == "openai")
    return f"{_ABOUT_ERRORS}; {routes} in OpenAI's format." if routes else f"{_ABOUT_ERRORS}."


def _operation(
    api: ApiDescription,
    tag: str,
    prefix: str,
    schemas: Schema,
    outputs: Outputs | None,
    settings: ServerSettings,
) -> Schema:
    """Describe an API. Its operation id, and the names of its schemas, begin with ``prefix``."""
    row = with_fields(_hoisted(prefix + api.name, api.schema, schemas), api.group_fields)
    summary, _, text = api.doc.partition("\n")
    dialect = Native(make_codec(api.input, api.settings.cost), offers=api.offers, errors=api.errors)
    example = None if outputs is None else example_result(outputs)
    makes_own = api.answers_each or api.streams
    return {
        "operationId": prefix + api.name,
        "tags": [tag],
        **({"summary": summary} if summary else {}),
        **({"description": text.strip()} if text.strip() else {}),
        "parameters": [_TIMEOUT, _REQUEST_ID, *_class_header(api), *_headers(api)],
        "requestBody": body_of(api, row),
        "responses": {
            "200": result_of(api, example),
            **errors_of(api.name, dialect, settings),
            "default": any_other() if makes_own else other_errors(dialect),
        },
    }


def _of_task(api: ApiDescription, path: str, own: Schema) -> Schema:
    """Describe a further route of an API of a text model, from the description of its own route."""
    asked = TEXT_MODELS[api.task].asked
    schema = msgspec.json.schema(asked)["$defs"][asked.__name__]
    done = {"description": "The response for this kind of client.", "headers": REPLY_HEADERS}
    return {
        **own,
        "operationId": f"{own['operationId']}.{path[1:].replace('/', '.')}",
        "requestBody": {"required": True, "content": {JSON: {"schema": schema}}},
        "responses": {**own["responses"], "200": {**done, "content": {JSON: {}}}},
    }


def _class_header(api: ApiDescription) -> list[Schema]:
    if api.class_names is None:
        return []
    first, second = api.class_names
    about = f"The class of the request. Requests of class {second} run in the room that {first} leaves."
    schema = {"type": "string", "enum": [first, second], "default": first}
    return [{"name": CLASS_HEADER, "in": "header", "description": about, "schema": schema}]


def _headers(api: ApiDescription) -> list[Schema]:
    """Describe the headers that requests are grouped by, and those that the handler reads."""
    about = "Requests share a batch only if they have the same value, or none."
    schema: Schema = {"type": "string", "maxLength": MAX_VALUE_BYTES}
    groups = [source.name for source in api.sources if source.kind == "header"]
    described = {
        **{name: ("The handler reads this header.", {"type": "string"}) for name in api.headers},
        **dict.fromkeys(groups, (about, schema)),
    }
    described.pop(REQUEST_ID, None)
    return [
        {"name": name, "in": "header", "description": text, "schema": limits}
        for name, (text, limits) in described.items()
    ]


def _hoisted(api: str, schema: Schema, schemas: Schema) -> Schema:
    """Move a schema's definitions to ``schemas``, prefixed by the API's name; return the rest."""
    definitions = schema.get("$defs", {})
    names = {f"#/$defs/{name}": f"#/components/schemas/{api}.{name}" for name in definitions}
    for name, definition in definitions.items():
        schemas[f"{api}.{name}"] = _referring(definition, names)
    renamed: Schema = _referring({key: value for key, value in schema.items() if key != "$defs"}, names)
    return renamed


def _referring(value: Any, names: Mapping[str, str]) -> Any:
    """Rename all references in a schema, also those in the mapping of a discriminator."""
    if isinstance(value, dict):
        return {key: _referring(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_referring(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value
