"""Commands whose options are the fields of a dataclass, and can also come from file and environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer

from uncork.cli.command import expand_options
from uncork.cli.proxy.options import ProxyOptions
from uncork.cli.usage import given, refusals
from uncork.config.environment import LOAD_TEST, read_environment, variable_of
from uncork.config.errors import WrongUsage
from uncork.config.file import read_file
from uncork.config.names import CONFIG
from uncork.config.sources import Configuration, Kind, RawSetting, Source
from uncork.server.options import ServeOptions
from uncork.server.server_options import ServerOptions
from uncork.server.workers.worker_port import LOCAL

Options = TypeVar("Options", bound=ServerOptions)

CONFIGURABLE: Mapping[str, type[ServerOptions]] = {"serve": ServeOptions, "proxy": ProxyOptions}
"""The commands that can be configured, by name."""

# The server of a load test runs beside the configured one, and only for clients of its own.
_LISTENERS = ("host", "uds", "grpc_port", "tls_cert", "tls_key", "tls_client_ca", "watch_config")


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand the options of a command that can be configured.

    The value of an option comes from the command line, the environment or the configuration file, in this
    order of precedence, or else is the default.
    """

    def build(options: type[Any], values: dict[str, Any], context: typer.Context) -> Any:
        with refusals(_path(context)):
            return _configure(options, values, context, dict(os.environ))

    return expand_options(command, build)


def _path(context: typer.Context) -> str:
    """Return the name of a command as typed, such as `config serve`."""
    parent = context.parent
    above = "" if parent is None or parent.parent is None else f"{parent.info_name} "
    return f"{above}{context.info_name}"


def _configure(
    options: type[Options], values: Mapping[str, Any], context: typer.Context, environment: Mapping[str, str]
) -> Options:
    """Combine ``values``, which are from the command line or defaults, with file and environment."""
    command = next(name for name, one in CONFIGURABLE.items() if one is options)
    flags = {name for name in given(context) if values.get(name) not in (None, [], ())}
    path = values[CONFIG] or environment.get(variable_of(CONFIG))
    layers = [
        read_file(Path(path), command, CONFIGURABLE) if path else Configuration(),
        read_environment(environment, command, CONFIGURABLE),
    ]
    if environment.get(LOAD_TEST):
        on = None if "on" in flags else (layers[0].settings | layers[1].settings).get("on")
        on_ray = (values.get("on", LOCAL) if on is None else on.value) != LOCAL
        layers = [_for_load_test(layer, on_ray=on_ray) for layer in layers]
    settings = layers[0].settings | layers[1].settings
    settings = _values({name: setting for name, setting in settings.items() if name not in flags}, context)
    given_flags = {str(one.name): one.opts[0] for one in context.command.params if str(one.name) in flags}
    return options(
        **{
            **values,
            CONFIG: Path(path) if path else None,
            **{name: setting.value for name, setting in settings.items()},
        },
        sources={
            **{name: Source(Kind.FLAG, flag) for name, flag in given_flags.items()},
            **{name: setting.source for name, setting in settings.items()},
        },
        api_overrides=[override for layer in layers for override in layer.overrides],
        services={
            name: replace(one, settings=_values(one.settings, context))
            for name, one in layers[0].services.items()
        },
        reread=partial(_configure, options, values, context, environment),
    )


def _for_load_test(layer: Configuration, *, on_ray: bool) -> Configuration:
    """Return settings without listeners, except that workers connect to a free port, on Ray to their own."""
    settings = {name: one for name, one in layer.settings.items() if name not in _LISTENERS}
    if "worker_port" in settings and not on_ray:
        settings["worker_port"] = replace(settings["worker_port"], value="0")
    services = {name: _for_load_test(one, on_ray=on_ray) for name, one in layer.services.items()}
    return replace(layer, settings=settings, services=services)


def _values(settings: Mapping[str, RawSetting], context: typer.Context) -> dict[str, RawSetting]:
    """Return settings with the values of the options, as the command line would give them."""
    values = {}
    for parameter in context.command.params:
        setting = settings.get(str(parameter.name))
        if setting is None:
            continue
        try:
            value = parameter.process_value(context, setting.value)
            values[str(parameter.name)] = replace(setting, value=value)
        except typer.BadParameter as error:
            separator = "" if error.message.startswith("must be ") else ":"
            raise WrongUsage(f"{setting.source.name}{separator} {error.message}") from None
    return values
