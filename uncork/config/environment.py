"""Settings from the environment: ``UNCORK_WORKERS``, ``UNCORK_API_PREDICT_MB_MAX_LATENCY``."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from uncork.config.errors import WrongUsage
from uncork.config.names import CONFIG, OF_CODE, Commands, checked_override, other_command, settings_of
from uncork.config.option_fields import kind_of
from uncork.config.sources import Configuration, Kind, RawSetting, Source, suggestion
from uncork_workers.wire.overrides import ARGUMENTS, Override

PREFIX = "UNCORK_"
_OF_APIS = f"{PREFIX}API_"
# Kubernetes sets these in every container for a Kubernetes Service whose name begins with ours.
_SERVICE_LINK = re.compile(
    r"UNCORK(_\w+)?_SERVICE_(HOST|PORT(_\w+)?)|UNCORK(_\w+)?_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?"
)
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
# Options of the locust users in `uncork_loadtests`, which a server must not import.
LOCUST_VARIABLES = {
    "UNCORK_ARRIVALS",
    "UNCORK_CONTENT_TYPE",
    "UNCORK_DATA",
    "UNCORK_EXPECTED",
    "UNCORK_GENERATORS",
    "UNCORK_LINES",
    "UNCORK_MAX_CONNECTIONS",
    "UNCORK_PATH",
    "UNCORK_RANGE",
    "UNCORK_RATE",
    "UNCORK_ROWS",
    "UNCORK_SECONDS",
    "UNCORK_SEED",
    "UNCORK_SHAPE",
    "UNCORK_THINK_MS",
    "UNCORK_WARMUP_SECONDS",
}
# Names the machine to `uncork worker`, and may be set for all processes of the machine.
_NODE = "UNCORK_NODE"
LOAD_TEST = "UNCORK_LOAD_TEST"
"""Set for the servers that load tests start, which do not listen where the configuration says."""


def variable_of(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def read_environment(environment: Mapping[str, str], command: str, commands: Commands) -> Configuration:
    """Read the settings of a command from the variables that begin with ``UNCORK_``; empty ones are ignored.

    Raises:
        WrongUsage: if a variable is unknown or its value is wrong; the message names it.
    """
    configuration = Configuration()
    settings = settings_of(commands[command])
    names = {variable_of(name): name for name in settings}
    for variable, text in _ours(environment):
        source = Source(Kind.ENVIRONMENT, variable)
        if (name := names.get(variable)) is not None:
            # Lists are separated by spaces.
            value = text.split() if kind_of(settings[name]) is list else text
            configuration.settings[name] = RawSetting(value, source)
        elif command == "serve" and variable.startswith(_OF_APIS):
            override = _override(variable, text, source, known=list(names))
            configuration.overrides.append((Kind.ENVIRONMENT, override))
        elif variable not in {*LOCUST_VARIABLES, _NODE, LOAD_TEST}:
            raise WrongUsage(_unknown(variable, command, commands))
    return configuration


def _ours(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, text in sorted(environment.items()):
        is_link = _SERVICE_LINK.fullmatch(variable) or (
            variable.endswith("_PORT") and _ADDRESS.match(text) is not None
        )
        if variable.startswith(PREFIX) and text and variable != variable_of(CONFIG) and not is_link:
            yield variable, text


def _override(variable: str, text: str, source: Source, *, known: list[str]) -> Override:
    rest = variable.removeprefix(_OF_APIS)
    for argument in (*ARGUMENTS, *OF_CODE):
        api = rest.removesuffix(f"_{argument.upper()}")
        if api and api != rest:
            return checked_override(api, argument, _value(text), source)
    near = [*get_close_matches(variable, known, n=1, cutoff=0.9), *_near(rest)]
    endings = ", ".join(argument.upper() for argument in ARGUMENTS)
    advice = f"did you mean {near[0]}?" if near else f"use {_OF_APIS}NAME_ followed by one of {endings}"
    raise WrongUsage(f"{variable} does not end in an argument of @api; {advice}")


def _near(rest: str) -> Iterator[str]:
    """Variables like UNCORK_API_``rest`` in which a misspelt argument of ``@api`` is corrected."""
    words = rest.split("_")
    for count in range(1, len(words)):
        for argument in get_close_matches("_".join(words[count:]).lower(), ARGUMENTS, n=1, cutoff=0.8):
            yield f"{_OF_APIS}{'_'.join(words[:count])}_{argument.upper()}"


def _value(text: str) -> Any:
    """Parse a value as in the file; texts may lack their quotes."""
    try:
        values = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        # As Python and the message for a wrong value write them.
        return {"True": True, "False": False}.get(text, text)
    return values["value"] if len(values) == 1 else text


def _unknown(variable: str, command: str, commands: Commands) -> str:
    if variable.startswith(_OF_APIS):
        return f"{variable} is a setting of an API, and uncork {command} has none; unset it"
    name = variable.removeprefix(PREFIX).lower()
    if (other := other_command(name, command, commands)) is not None:
        return f"{variable} is a setting of uncork {other}, not of uncork {command}; unset it"
    help_text = f"unset it, or correct it: uncork {command} --help"
    advice = suggestion(name, settings_of(commands[command]), shown=variable_of, listed_by=help_text)
    return f"{variable} is not a setting of uncork {command}; {advice}"
