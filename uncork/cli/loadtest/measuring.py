"""What the commands of the load-test harness share: optional libraries, and how a measurement ends."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path

import typer

from uncork.cli.terminal import INTERRUPTED, print_error
from uncork.config.errors import WrongUsage
from uncork_loadtests.servers import BenchError, end_on_sigterm
from uncork_loadtests.targets import NoSuchApi
from uncork_workers.extras import install_command


@contextlib.contextmanager
def measuring(command: str) -> Iterator[None]:
    """Print why a measurement failed and exit with its code; SIGTERM unwinds the stack.

    Unwinding ends the servers and generators that the measurement started.
    """
    end_on_sigterm()
    try:
        yield
    except (BenchError, NoSuchApi) as error:
        print_error(command, error)
        raise typer.Exit(2 if isinstance(error, NoSuchApi) else 1) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def require(module: str, *, wanted_by: str) -> None:
    """Check that a module of ``uncork[loadtest]`` is installed, by importing it.

    Raises:
        WrongUsage: if it is not.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise WrongUsage(
            f"{wanted_by} requires {library}; run {install_command('loadtest')} ({error})"
        ) from None


def require_page(option: str, file: Path | None) -> None:
    """Check that a page with charts can be drawn, if one is wanted.

    Raises:
        WrongUsage: if its name does not end in .html, or plotly is not installed.
    """
    if file is None:
        return
    if file.suffix.lower() != ".html":
        raise WrongUsage(f"{option} writes an HTML page, whose name must end in .html; got {str(file)!r}")
    require("plotly.graph_objects", wanted_by=option)
