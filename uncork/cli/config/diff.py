"""``uncork config diff``: what a reload of a running server would change."""

from typing import Annotated

import msgspec
import typer

from uncork.cli.errors import print_error
from uncork.cli.terminal import plain_table, show
from uncork.config.changes import Effect, names_of, needing
from uncork.server.control_socket import DIFF, NoServer, Outcome, ask

_COMMAND = "config diff"


def diff(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that the server listens on.")] = 3000,
    json: Annotated[bool, typer.Option("--json", help="Print the changes as JSON.")] = False,
) -> None:
    """Show which settings of a running `uncork serve` a reload would change, and how each takes effect.

    The server must run on this machine, as the same user. It reads its configuration file again, under the
    command line and environment with which it was started, and changes nothing. The exit code is 0 if
    nothing differs, 1 if something does, and 2 if the settings are wrong or no server is found.
    """
    try:
        outcome = ask(port, DIFF)
    except NoServer as error:
        print_error(_COMMAND, error)
        raise typer.Exit(2) from None
    if outcome.message:
        print_error(_COMMAND, outcome.message)
        raise typer.Exit(2)
    if json:
        typer.echo(_as_json(outcome))
    elif outcome.changes:
        _show(outcome)
    else:
        typer.echo("no setting differs")
    raise typer.Exit(outcome.code)


def _as_json(outcome: Outcome) -> bytes:
    return msgspec.json.format(msgspec.json.encode({"changes": outcome.changes}))


def _show(outcome: Outcome) -> None:
    headings = ("now", "after reload", "effect")
    table = plain_table("setting", *headings, words=headings)
    for change in outcome.changes:
        table.add_row(change.name, change.before, change.after, change.effect)
    show([table])
    if fixed := needing(Effect.RESTART, outcome.changes):
        typer.echo(f"\na reload would change nothing, because a new {names_of(fixed)} needs a restart")
