"""What is wrong with how a command was called, told before anything is started."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import typer

from uncork.cli.errors import print_error
from uncork_loadtests.extras import ExtraMissing, require

PICTURES = (".png", ".svg", ".pdf")
"""What the name of a picture may end in."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class WrongUsage(Exception):
    """The message says what is wrong with the options."""


@contextlib.contextmanager
def refusals(command: str) -> Iterator[None]:
    """Tell what a block finds wrong with the options, or missing for them, and exit with 2."""
    try:
        yield
    except (WrongUsage, ExtraMissing) as error:
        print_error(command, error)
        raise typer.Exit(2) from None


def exit_code(command: str, run: Callable[[], int]) -> int:
    """What a server ends with: 2 if it was called wrongly, 1 if the system refuses it what it needs."""
    try:
        with refusals(command):
            return run()
    except OSError as error:
        print_error(command, error.strerror or error)
        return 1


def given(context: typer.Context) -> set[str]:
    """The options that were on the command line."""
    # By its name: newer versions of typer have an enum of their own, older ones that of click.
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def in_options(error: ValueError, options: Mapping[str, str]) -> WrongUsage:
    """What is wrong with a field, in terms of the options: values speak of fields, people of options."""
    fields = re.compile(rf"\b({'|'.join(options)})\b(?=.* (?:must|are) )")
    return WrongUsage(fields.sub(lambda found: options[found[1]], str(error)))


def read_header_name(text: str) -> bytes:
    """The name of a header in lower case.

    Raises:
        ValueError: if it is none.
    """
    if not _HEADER_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a header")
    return text.lower().encode()


def require_writable(targets: Mapping[str, str | Path | None]) -> None:
    """See that results can be written, by the option that names the file; the text `-` is the terminal.

    Raises:
        WrongUsage: if not.
    """
    for option, target in targets.items():
        if target is None or target == "-":
            continue
        file = Path(target)
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise WrongUsage(f"{option}: {str(file)!r} cannot be written")


def require_picture(plot: Path | None) -> None:
    """See that a picture can be drawn.

    Raises:
        WrongUsage: if its name does not say a format.
        ExtraMissing: if matplotlib is not installed.
    """
    if plot is None:
        return
    if plot.suffix.lower() not in PICTURES:
        raise WrongUsage(f"--plot takes a name that ends in {', '.join(PICTURES)}, got {str(plot)!r}")
    require("matplotlib.figure", wanted_by="--plot")
