"""``--config``: settings from a TOML file."""

import inspect
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncork.config.errors import WrongUsage
from uncork.config.names import (
    OF_SERVICES,
    Commands,
    check_service_name,
    checked_override,
    other_command,
    settings_of,
)
from uncork.config.option_fields import kind_of
from uncork.config.sources import Configuration, Kind, RawSetting, Source, suggestion
from uncork_workers.wire.overrides import ARGUMENTS, Override

_APIS = "api"
_SERVICES = "services"
_ENVIRONMENT = "environment"
_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    list: ((list,), "a string or a list of strings"),
    str: ((str, int), "a string"),
}


def read_file(path: Path, command: str, commands: Commands) -> Configuration:
    """Read the settings of a command: the keys at the top, its own table, and the tables of the APIs.

    Raises:
        WrongUsage: if the file cannot be read, or a key or value is wrong; the message names file and key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUsage(f"--config: {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"--config: {path} is not valid TOML: {error}") from None
    apis = content.pop(_APIS, {})
    services = content.pop(_SERVICES, {})
    tables = {name: content.pop(name, {}) for name in commands}
    for name, table in tables.items():
        _require_table(table, f"{path}: {name}")
        _check_names(table, name, f"{path}: {name}.", commands)
    _check_names(content, command, f"{path}: ", commands)
    tables_of_command = {f"{path}: ": content, f"{path}: {command}.": tables[command]}
    return Configuration(
        _settings(tables_of_command, settings_of(commands[command])),
        _overrides(apis, f"{path}: {_APIS}"),
        _services(services, f"{path}: {_SERVICES}", commands),
    )


def _settings(
    tables: Mapping[str, dict[str, Any]], known: Mapping[str, inspect.Parameter]
) -> dict[str, RawSetting]:
    """Return the settings in tables, by the prefix of their keys in messages."""
    settings: dict[str, RawSetting] = {}
    for prefix, table in tables.items():
        for key, value in table.items():
            name, source = _name(key), Source(Kind.FILE, f"{prefix}{key}")
            if name in settings:
                raise WrongUsage(f"{source.name} is set twice, also as {settings[name].source.name}")
            if name == _ENVIRONMENT and isinstance(value, dict):
                value = _variables(value, source.name)
            settings[name] = RawSetting(_as_given(value, kind_of(known[name]), source), source)
    return settings


def _services(services: Any, prefix: str, commands: Commands) -> dict[str, Configuration]:
    _require_table(services, prefix, "of services, such as [services.digits]")
    known = {name: one for name, one in settings_of(commands["serve"]).items() if name in OF_SERVICES}
    found: dict[str, Configuration] = {}
    for service, table in services.items():
        here = f"{prefix}.{service}"
        check_service_name(service, here, advice="choose another name")
        _require_table(table, here, "with the settings of a service")
        settings = {key: value for key, value in table.items() if key != _APIS}
        _check_names_of_service(settings, service, f"{here}.", commands)
        found[service] = Configuration(
            _settings({f"{here}.": settings}, known), _overrides(table.get(_APIS, {}), f"{here}.{_APIS}")
        )
    return found


def _check_names_of_service(table: dict[str, Any], service: str, prefix: str, commands: Commands) -> None:
    for key in table:
        name = _name(key)
        if name in OF_SERVICES:
            continue
        if name in settings_of(commands["serve"]):
            raise WrongUsage(
                f"{prefix}{key} is a setting of the whole server; move it to the top of the file"
            )
        if name in ARGUMENTS:
            raise WrongUsage(
                f"{prefix}{key} is a setting of an API; move it to [{_SERVICES}.{service}.{_APIS}.NAME]"
            )
        advice = suggestion(name, [*OF_SERVICES, _APIS])
        raise WrongUsage(f"{prefix}{key} is not a setting of a service; {advice}")


def _variables(variables: dict[str, Any], prefix: str) -> list[str]:
    """Return a table of environment variables as the command line takes them."""
    for name, value in variables.items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise WrongUsage(f"{prefix}.{name} must be a string or a number, got {value!r}")
    return [f"{name}={value}" for name, value in variables.items()]


def _name(key: str) -> str:
    return key.replace("-", "_")


def _check_names(table: dict[str, Any], command: str, prefix: str, commands: Commands) -> None:
    known = settings_of(commands[command])
    for key in table:
        name = _name(key)
        if name in known:
            continue
        if name in ARGUMENTS and command == "serve":
            raise WrongUsage(f"{prefix}{key} is a setting of an API; move it to [{_APIS}.NAME]")
        if (other := other_command(name, command, commands)) is not None:
            raise WrongUsage(f"{prefix}{key} is a setting of uncork {other}; move it to [{other}]")
        names = [*known, *commands, _APIS, _SERVICES] if prefix.endswith(" ") else known
        advice = suggestion(name, names, listed_by=f"uncork {command} --help")
        raise WrongUsage(f"{prefix}{key} is not a setting of uncork {command}; {advice}")


def _overrides(apis: Any, prefix: str) -> list[tuple[Kind, Override]]:
    _require_table(apis, prefix)
    found: dict[tuple[str, str], Override] = {}
    for api, table in apis.items():
        _require_table(table, f"{prefix}.{api}", "with the settings of an API, such as [api.predict]")
        for key, value in table.items():
            source = Source(Kind.FILE, f"{prefix}.{api}.{key}")
            override = checked_override(api, _name(key), value, source)
            if (api, override.argument) in found:
                raise WrongUsage(
                    f"{source.name} is set twice, also as {found[api, override.argument].source}"
                )
            found[api, override.argument] = override
    return [(Kind.FILE, override) for override in found.values()]


def _require_table(value: Any, where: str, of: str = "of settings") -> None:
    if not isinstance(value, dict):
        raise WrongUsage(f"{where} must be a table {of}, got {value!r}")


def _as_given(value: Any, kind: type, source: Source) -> str | bool | list[str]:
    """Return a value in the form that the command line takes."""
    types, expected = _KINDS[kind]
    fits = isinstance(value, types) and (kind is bool or not isinstance(value, bool))
    if kind is list and isinstance(value, str):
        return [value]
    if not fits or (kind is list and not all(isinstance(one, str) for one in value)):
        raise WrongUsage(f"{source.name} must be {expected}, got {value!r}")
    return value if isinstance(value, bool | list) else str(value)
