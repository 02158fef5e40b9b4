"""The command line. Exit codes: 0 success, 1 the job failed, 2 wrong usage."""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from uncork.cli.command import Command
from uncork_dispatcher import CORE_IS_COMPILED

COMMANDS = (
    "serve",
    "init",
    "worker",
    "config",
    "reload",
    "proxy",
    "simulate",
    "loadtest",
    "compare",
    "tune",
    "check",
)
"""Every command; ``uncork.cli.NAME.command`` defines NAME, a function or a group of commands."""


class _LazyGroup(TyperGroup):
    """Imports a command when it is looked up: a server does not load the load tests."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("dict[str, Any]", dict.fromkeys(COMMANDS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"uncork.cli.{cmd_name}.command"), cmd_name)
        if not isinstance(command, typer.Typer):
            single = typer.Typer(rich_markup_mode=None, add_completion=False)
            single.command(cmd_name, cls=Command)(command)
            command = single
        return typer.main.get_command(command)


app = typer.Typer(
    name="uncork",
    cls=_LazyGroup,
    help="An adaptive micro-batching gateway for model services.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        core = "compiled core" if CORE_IS_COMPILED else "pure Python"
        typer.echo(f"uncork {version('uncork')} ({core})")
        raise typer.Exit


@app.callback()
def _uncork(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """An adaptive micro-batching gateway for model services."""


def main() -> None:
    """Run the command line, with signals and streams as they are."""
    app()
