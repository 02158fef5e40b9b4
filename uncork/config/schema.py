"""A JSON Schema of the configuration file, by which editors complete and check it."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec

from uncork.config.names import OF_SERVICES, Commands, settings_of
from uncork.config.option_fields import kind_of, parameter_info
from uncork_workers.wire.schema import ApiSettings

Schema = dict[str, Any]

_TEXTS = {"type": "array", "items": {"type": "string"}}
# As the file's reader accepts them.
_TYPES: Mapping[type, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    list: {"anyOf": [{"type": "string"}, _TEXTS]},
    str: {"type": ["string", "integer"]},
}
_VARIABLES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def file_schema(commands: Commands) -> Schema:
    """Return the schema of a file for these commands; each key may have hyphens or underscores.

    The keys at the top are those of all commands, as nothing in a file names its command.
    """
    settings = {name: _settings(settings_of(options)) for name, options in commands.items()}
    apis = {"type": "object", "additionalProperties": _table(_arguments())}
    serve = settings["serve"]
    of_service = {name: serve[name] for name in serve if name.replace("-", "_") in OF_SERVICES}
    tables = {name: _table(each) for name, each in settings.items()}
    tables["api"] = apis
    tables["services"] = {"type": "object", "additionalProperties": _table({**of_service, "api": apis})}
    at_top = {key: schema for each in reversed(settings.values()) for key, schema in each.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of Uncork",
        **_table({**at_top, **tables}),
    }


def _table(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _settings(parameters: Mapping[str, inspect.Parameter]) -> Schema:
    return _with_hyphens((name, _setting(name, one)) for name, one in parameters.items())


def _with_hyphens(schemas: Iterable[tuple[str, Schema]]) -> Schema:
    return {key: schema for name, schema in schemas for key in (name.replace("_", "-"), name)}


def _setting(name: str, parameter: inspect.Parameter) -> Schema:
    info = parameter_info(parameter.annotation)
    assert info is not None
    hint = get_args(parameter.annotation)[0]
    schema = dict(_TYPES[kind_of(parameter)])
    if get_origin(hint) is Literal:
        schema = {"enum": list(get_args(hint))}
    if name == "environment":
        schema = {"anyOf": [*schema["anyOf"], _VARIABLES]}
    limits = {"minimum": info.min, "maximum": info.max}
    schema |= {key: limit for key, limit in limits.items() if limit is not None}
    return {"description": info.help, **schema}


def _arguments() -> Schema:
    """Return the schemas of the arguments of ``@api`` for one API."""
    _, definitions = msgspec.json.schema_components([ApiSettings])
    of_fields: Schema = definitions[ApiSettings.__name__]["properties"]
    return _with_hyphens([("route", {"type": "string"}), *of_fields.items()])
