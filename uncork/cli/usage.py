"""Checks of a command's options before it starts anything."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import typer

from uncork.cli.terminal import print_error
from uncork.config.errors import WrongUsage
from uncork_dispatcher import SettingError


@contextlib.contextmanager
def refusals(command: str) -> Iterator[None]:
    """Print a ``WrongUsage`` of the block and exit with 2."""
    try:
        yield
    except WrongUsage as error:
        print_error(command, error)
        raise typer.Exit(2) from None


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Run a server; return its exit code, or 1 if the system denies it a resource such as a port."""
    try:
        with refusals(command):
            return run()
    except OSError as error:
        print_error(command, error.strerror or error)
        return 1


def given(context: typer.Context) -> set[str]:
    """Return the names of the options that are on the command line."""
    # By its name: newer versions of typer have an enum of their own, older ones that of click.
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def named(options: Mapping[str, str], given: Collection[str]) -> str:
    """Return the options that are on the command line, separated by commas."""
    return ", ".join(option for name, option in options.items() if name in given)


def in_options(error: ValueError, options: Mapping[str, str]) -> WrongUsage:
    """Return an error about fields as one about options; ``options`` maps fields to options."""
    return WrongUsage(error.under(options) if isinstance(error, SettingError) else str(error))


def require_writable(targets: Mapping[str, str | Path | None]) -> None:
    """Check that results can be written, given the file of each option; ``-`` is the terminal.

    Raises:
        WrongUsage: if a file cannot be written.
    """
    for option, target in targets.items():
        if target is None or target == "-":
            continue
        file = Path(target)
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise WrongUsage(
                f"{option}: cannot write {str(file)!r}; give a file in an existing, writable folder"
            )
