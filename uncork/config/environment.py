"""Settings from the environment: ``UNCORK_WORKERS``, ``UNCORK_API_PREDICT_MB_MAX_LATENCY``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from uncork.cli.option_fields import kind_of
from uncork.cli.usage import WrongUsage
from uncork.config.names import CONFIG, OF_CODE, checked_override, other_command, settings_of
from uncork.config.sources import Configuration, Kind, Said, Source, suggestion
from uncork_loadtests.locust.options import VARIABLES as _OF_LOCUST
from uncork_workers.wire.overrides import ARGUMENTS, Override

PREFIX = "UNCORK_"
_OF_APIS = f"{PREFIX}API_"
# What Kubernetes tells every container of a Service whose name begins with ours.
_SERVICE_LINK = re.compile(
    r"UNCORK(_\w+)?_SERVICE_(HOST|PORT(_\w+)?)|UNCORK(_\w+)?_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?"
)
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def variable_of(name: str) -> str:
    """The variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def read_environment(environment: Mapping[str, str], command: str) -> Configuration:
    """What the variables that begin with ``UNCORK_`` say to a command; empty ones say nothing.

    Raises:
        WrongUsage: if one is unknown, or has a value that cannot be; the message names it.
    """
    configuration = Configuration()
    names = {variable_of(name): name for name in settings_of(command)}
    for variable, text in _ours(environment):
        source = Source(Kind.ENVIRONMENT, variable)
        if (name := names.get(variable)) is not None:
            configuration.settings[name] = Said(_as_given(text, command, name), source)
        elif command == "serve" and variable.startswith(_OF_APIS):
            configuration.overrides.append((Kind.ENVIRONMENT, _override(variable, text, source)))
        elif variable not in _OF_LOCUST.values():
            raise WrongUsage(_unknown(variable, command))
    return configuration


def _ours(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, text in sorted(environment.items()):
        is_link = _SERVICE_LINK.fullmatch(variable) or (
            variable.endswith("_PORT") and _ADDRESS.match(text) is not None
        )
        if variable.startswith(PREFIX) and text and variable != variable_of(CONFIG) and not is_link:
            yield variable, text


def _as_given(text: str, command: str, name: str) -> str | list[str]:
    """A list stands with spaces between its items."""
    return text.split() if kind_of(settings_of(command)[name]) is list else text


def _override(variable: str, text: str, source: Source) -> Override:
    rest = variable.removeprefix(_OF_APIS)
    for argument in (*ARGUMENTS, *OF_CODE):
        api = rest.removesuffix(f"_{argument.upper()}")
        if api and api != rest:
            return checked_override(api, argument, _value(text), source)
    near = [*get_close_matches(variable, _of_serve(), n=1, cutoff=0.9), *_near(rest)]
    told = f"did you mean {near[0]}?" if near else f"they are {', '.join(ARGUMENTS)}"
    raise WrongUsage(f"{variable} ends in no argument of @api; {told}")


def _near(rest: str) -> Iterator[str]:
    """Names with an argument of ``@api`` in place of what is similar to it."""
    words = rest.split("_")
    for count in range(1, len(words)):
        for argument in get_close_matches("_".join(words[count:]).lower(), ARGUMENTS, n=1, cutoff=0.8):
            yield f"{_OF_APIS}{'_'.join(words[:count])}_{argument.upper()}"


def _of_serve() -> list[str]:
    return [variable_of(name) for name in settings_of("serve")]


def _value(text: str) -> Any:
    """A value as it would stand in the file; text may lack its quotes."""
    try:
        values = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return values["value"] if len(values) == 1 else text


def _unknown(variable: str, command: str) -> str:
    other = other_command(variable.removeprefix(PREFIX).lower(), command)
    if variable.startswith(_OF_APIS):
        return f"{variable}: uncork {command} has no apis"
    if other is not None:
        return f"{variable} is a setting of uncork {other}, not of uncork {command}"
    names = settings_of(command)
    told = suggestion(variable.removeprefix(PREFIX).lower(), names, shown=variable_of)
    return f"{variable} is no setting of uncork {command}; {told}"
