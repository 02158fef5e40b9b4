"""What can be configured: the options of the commands that serve, and the arguments of ``@api``."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from uncork.cli.option_fields import option_parameters
from uncork.cli.proxy.options import ProxyOptions
from uncork.cli.serve.options import ServeOptions, ServerOptions, check_policy
from uncork.cli.usage import WrongUsage
from uncork.config.sources import Source, suggestion
from uncork_workers.wire.overrides import ARGUMENTS, Override
from uncork_workers.wire.schema import ApiSettings, check_route

COMMANDS: dict[str, type[ServerOptions]] = {"serve": ServeOptions, "proxy": ProxyOptions}
"""The commands that can be configured, by name."""

CONFIG = "config"
"""The option that names the file, and therefore cannot stand in it."""

OF_CODE = ("input", "output", "warmup")
"""Arguments of ``@api`` that only code can give."""


@functools.cache
def settings_of(command: str) -> dict[str, inspect.Parameter]:
    """The settings of a command, its options and arguments, by name with underscores."""
    parameters = option_parameters(COMMANDS[command])
    return {name: parameter for name, parameter in parameters.items() if name != CONFIG}


def other_command(name: str, command: str) -> str | None:
    """The command that has a setting which this one has not."""
    return next((one for one in COMMANDS if one != command and name in settings_of(one)), None)


def checked_override(api: str, argument: str, value: Any, source: Source) -> Override:
    """An argument of ``@api`` for one api.

    Raises:
        WrongUsage: if there is no such argument, or it cannot have such a value for any input.
    """
    if argument in OF_CODE:
        raise WrongUsage(f"{source.name}: {argument} is given in code, with @api; it cannot be configured")
    if argument not in ARGUMENTS:
        raise WrongUsage(
            f"{source.name}: there is no argument {argument} of @api; {suggestion(argument, ARGUMENTS)}"
        )
    try:
        _check(api, argument, tuple(value) if isinstance(value, list) else value)
    except ValueError as error:
        raise WrongUsage(f"{source.name}: {str(error).removeprefix(f'api {api!r}: ')}") from None
    return Override(api=api, argument=argument, value=value, source=source.name)


def _check(api: str, argument: str, value: Any) -> None:
    if argument == "route":
        check_route(api, value)
        return
    ApiSettings(**{argument: value}).check(api)
    if argument == "policy":
        check_policy(value)
