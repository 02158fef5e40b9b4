"""``uncork reload``."""

from typing import Annotated

import typer

from uncork.cli.terminal import INTERRUPTED, print_error, telling
from uncork.server.control_socket import RELOAD, ask


def reload(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that the server listens on.")] = 3000,
) -> None:
    """Have a running `uncork serve` or `uncork proxy` read its settings again, and replace its workers.

    The server must run on this machine, as the same user. The new workers run the current code. They take
    over together when all are ready, and the new settings take effect with them. If a worker fails or a
    setting is wrong, nothing changes, and the exit code is 1.
    """
    try:
        with telling() as tell:
            tell("reloading; press Ctrl-C to cancel and keep the old workers")
            outcome = ask(port, RELOAD)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if outcome.code:
        print_error("reload", outcome.message)
    else:
        typer.echo(outcome.message)
    raise typer.Exit(outcome.code)
