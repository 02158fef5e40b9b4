"""``uncork reload``."""

from typing import Annotated

import typer

from uncork.cli.errors import print_error
from uncork.cli.terminal import INTERRUPTED, telling
from uncork.server.control_socket import NoServer, ask_to_reload


def reload(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that the server listens on.")] = 3000,
) -> None:
    """Replace the workers of a running `uncork serve` with new ones that run the current code.

    The server must run on this machine, as the same user. The new workers take over together when all are
    ready. If one fails, the old workers keep running, and the exit code is 1.
    """
    try:
        with telling() as tell:
            tell("starting new workers; press Ctrl-C to cancel and keep the old ones")
            outcome = ask_to_reload(port)
    except NoServer as error:
        print_error("reload", error)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if outcome.code:
        print_error("reload", outcome.message)
    else:
        typer.echo(outcome.message)
    raise typer.Exit(outcome.code)
