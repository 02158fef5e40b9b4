"""Commands that tell the options they were given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from uncork.cli.command import Command
from uncork.cli.configurable import takes_options
from uncork.cli.proxy.options import ProxyOptions
from uncork.server.options import ServeOptions
from uncork.server.server_options import ServerOptions

_seen: list[ServerOptions] = []


@takes_options
def serve(options: ServeOptions) -> None:
    """Keep what is in force."""
    _seen.append(options)


@takes_options
def proxy(options: ProxyOptions) -> None:
    """Keep what is in force."""
    _seen.append(options)


_commands = typer.Typer(rich_markup_mode=None)
for _command in (serve, proxy):
    _commands.command(cls=Command)(_command)
_group: Any = typer.main.get_command(_commands)


class _Group(TyperGroup):
    """The commands, made once: it takes longer than to run one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _group.commands


_app = typer.Typer(cls=_Group, rich_markup_mode=None)
_app.callback()(lambda: None)


def run(*arguments: object, environment: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(_app, [str(one) for one in arguments], env=environment)


def options_of(*arguments: object, environment: Mapping[str, str] | None = None) -> Any:
    _seen.clear()
    result = run(*arguments, environment=environment)
    assert result.exit_code == 0, result.output
    [options] = _seen
    return options


def refused(*arguments: object, environment: Mapping[str, str] | None = None) -> str:
    result = run(*arguments, environment=environment)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return result.stderr
