"""What the commands of the load-test harness share: optional libraries, and how a measurement ends."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer

from uncork.cli.errors import print_error
from uncork.cli.terminal import INTERRUPTED
from uncork.config.errors import WrongUsage
from uncork_loadtests import extras
from uncork_loadtests.generator.fleet import LoadTestError
from uncork_loadtests.servers import BenchError, end_on_sigterm
from uncork_loadtests.targets import NoSuchApi

PICTURES = (".png", ".svg", ".pdf")
"""Endings that the name of a picture may have."""


@contextlib.contextmanager
def measuring(command: str) -> Iterator[None]:
    """Print why a measurement failed and exit with its code; SIGTERM unwinds the stack.

    Unwinding ends the servers and generators that the measurement started.
    """
    end_on_sigterm()
    try:
        yield
    except (LoadTestError, BenchError, NoSuchApi) as error:
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
        extras.require(module, wanted_by=wanted_by)
    except extras.ExtraMissing as error:
        raise WrongUsage(str(error)) from None


def require_picture(plot: Path | None) -> None:
    """Check that a picture can be drawn, if one is wanted.

    Raises:
        WrongUsage: if its name does not end in a format, or matplotlib is not installed.
    """
    if plot is None:
        return
    if plot.suffix.lower() not in PICTURES:
        raise WrongUsage(f"--plot must end in one of {', '.join(PICTURES)}, got {str(plot)!r}")
    require("matplotlib.figure", wanted_by="--plot")
