"""Names of settings: the options of the commands that can be configured, and the arguments of ``@api``."""

import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any

from uncork.config.errors import WrongUsage
from uncork.config.option_fields import option_parameters
from uncork.config.sources import Source, suggestion
from uncork_dispatcher import make_policy
from uncork_workers.wire.overrides import ARGUMENTS, Override
from uncork_workers.wire.schema import ApiSettings
from uncork_workers.wire.values import check_route, is_reserved

OF_SERVICES = (
    "target",
    "workers",
    "idle_after",
    "policy",
    "mb_max_latency",
    "mb_max_batch_size",
    "max_batches_per_worker",
    "max_worker_memory",
    "worker_memory_limit",
    "gpus",
    "warmup_seconds",
    "python",
    "trust_pickle",
    "environment",
    "own_routes",
    "weight",
    "shadow",
    "worker_cpus",
    "worker_gpus",
    "worker_port",
    "worker_address",
)
"""The settings of `uncork serve` that several services can have for themselves."""

_SERVICE_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(@[1-9][0-9]{0,17})?")

Commands = Mapping[str, type[Any]]
"""The commands that can be configured: the dataclass of options of each."""

CONFIG = "config"
"""The option that names the configuration file; the file itself cannot set it."""

OF_CODE = (
    "input",
    "output",
    "warmup",
    "errors",
    "group_by",
    "classes",
    "coalesce",
    "headers",
    "prepare",
    "finish",
    "concurrency",
)
"""Arguments of ``@api`` that only code can give."""


def settings_of(options: type[Any]) -> dict[str, inspect.Parameter]:
    """Return the settings of a command, its options and arguments, by name with underscores."""
    return {name: parameter for name, parameter in option_parameters(options).items() if name != CONFIG}


def other_command(name: str, command: str, commands: Commands) -> str | None:
    """Return a command that has a setting of this name, other than ``command``."""
    return next((one for one in commands if one != command and name in settings_of(commands[one])), None)


def check_service_name(name: str, where: str, *, advice: str) -> None:
    """Check that a service can be served under a name, which is the first part of paths.

    Raises:
        WrongUsage: if it cannot; ``where`` says where the name comes from, ``advice`` how to change it.
    """
    found = _SERVICE_NAME.fullmatch(name)
    if found is None:
        raise WrongUsage(
            f"{where}: the name of a service must begin with a letter, followed by letters, digits, - or _, "
            f"and may end in @ and the number of a version; got {name!r}; {advice}"
        )
    path = f"/{found[1]}"
    if is_reserved(path) or is_reserved(f"{path}/"):
        raise WrongUsage(f"{where}: the gateway itself uses the path {path}; {advice}")


def check_policy(name: str) -> None:
    """Check that a policy exists; raise ValueError if it does not."""
    make_policy(name, limit_rows=sys.maxsize)


def checked_override(api: str, argument: str, value: Any, source: Source) -> Override:
    """Return the override of one argument of ``@api`` for one API.

    Raises:
        WrongUsage: if there is no such argument, or no API can have this value.
    """
    if argument in OF_CODE:
        raise WrongUsage(f"{source.name}: {argument} can be set only in code, with @api")
    if argument not in ARGUMENTS:
        raise WrongUsage(f"{source.name}: @api has no argument {argument}; {suggestion(argument, ARGUMENTS)}")
    try:
        _check(api, argument, tuple(value) if isinstance(value, list) else value)
    except ValueError as error:
        raise WrongUsage(f"{source.name}: {str(error).removeprefix(f'API {api!r}: ')}") from None
    return Override(api=api, argument=argument, value=value, source=source.name)


def _check(api: str, argument: str, value: Any) -> None:
    if argument == "route":
        check_route(api, value)
        return
    ApiSettings(**{argument: value}).check(api)
    if argument == "policy":
        check_policy(value)
