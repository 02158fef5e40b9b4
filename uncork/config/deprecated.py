"""Deprecated names of settings, which still work; docs/reference/compatibility.md has the policy."""

from functools import cache
from typing import NamedTuple

import typer


class Renamed(NamedTuple):
    """The current name of a setting, and the version that removes the old one."""

    name: str
    removed_in: str


RENAMED: dict[str, Renamed] = {}
"""The options and arguments of ``@api`` with a deprecated name, by that name with underscores."""


def current_name(name: str, *, shown: str) -> str:
    """Return the current name of a setting; warn if ``name`` is deprecated, which people see as ``shown``."""
    renamed = RENAMED.get(name)
    if renamed is None:
        return name
    _warn(f"{shown} is deprecated, and will be removed in {renamed.removed_in}; use {renamed.name}")
    return renamed.name


def current_option(argument: str) -> str:
    """Return an argument of a command line with the current name of an option, if it begins with one."""
    option, equals, value = argument.partition("=")
    name = option.removeprefix("--").replace("-", "_")
    if not option.startswith("--") or name not in RENAMED:
        return argument
    return f"--{current_name(name, shown=option).replace('_', '-')}{equals}{value}"


@cache
def _warn(text: str) -> None:
    """Print a warning, once."""
    typer.echo(f"warning: {text}", err=True)
