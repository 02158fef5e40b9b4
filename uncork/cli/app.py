"""The command line. Exit codes: 0 fine, 1 the job failed, 2 wrong usage."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from uncork.cli.check.command import check
from uncork.cli.command import Command
from uncork.cli.compare.command import compare
from uncork.cli.config import command as config
from uncork.cli.loadtest.command import loadtest
from uncork.cli.proxy.command import proxy
from uncork.cli.reload.command import reload as reload_workers
from uncork.cli.serve.command import serve
from uncork.cli.simulate.command import simulate
from uncork.cli.tune.command import tune

app = typer.Typer(
    name="uncork",
    help="An adaptive micro-batching gateway for model services.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"uncork {version('uncork')}")
        raise typer.Exit


@app.callback()
def _uncork(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """An adaptive micro-batching gateway for model services."""


app.command(cls=Command)(serve)
app.add_typer(config.app, name="config")
app.command("reload", cls=Command)(reload_workers)
app.command(cls=Command)(proxy)
app.command(cls=Command)(simulate)
app.command(cls=Command)(loadtest)
app.command(cls=Command)(compare)
app.command(cls=Command)(tune)
app.command(cls=Command)(check)


def main() -> None:
    """Entry point of the ``uncork`` command."""
    app()
