"""``uncork reload``."""

from __future__ import annotations

from typing import Annotated

import typer

from uncork.cli.errors import print_error
from uncork.cli.terminal import INTERRUPTED, telling
from uncork.server.control_socket import NoServer, ask_to_reload


def reload(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that the server listens on.")] = 3000,
) -> None:
    """Have the `uncork serve` of this user on a port start new workers, on the code as it is now.

    They take over together when all are ready; if one fails, the old ones go on, and the exit code is 1.
    """
    try:
        with telling() as tell:
            tell("new workers are starting; Ctrl-C has the old ones go on")
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
