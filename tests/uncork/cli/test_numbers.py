"""Numbers out of range, for every option of every command that takes a number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import typer

from tests.uncork.config.asking import options_of
from uncork.cli.app import COMMANDS, app
from uncork.cli.command import Command

TEXTS = ["18446744073709551616", "1e400", "-1e400", "inf", "nan", "-1", "0", "x"]
LARGEST = 2**50
_commands: Any = typer.main.get_command(app)
NAMES = [name for name in COMMANDS if isinstance(_commands.get_command(None, name), Command)]


def outcome(parameter: Any, command: Any, text: str) -> Any:
    """Return the value of an option, or the message if the command line refuses it."""
    try:
        return parameter.process_value(typer.Context(command), text)
    except typer.BadParameter as error:
        return error.message


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_in_range_or_refused(name: str) -> None:
    command = _commands.get_command(None, name)
    ones = {parameter: outcome(parameter, command, "1") for parameter in command.params}
    numbers = [parameter for parameter, one in ones.items() if type(one) in (int, float)]
    for parameter, text in itertools.product(numbers, TEXTS):
        got = outcome(parameter, command, text)
        if isinstance(got, str):
            assert got.startswith(("must be a number ", "must be a whole number ")), parameter.name
            assert " to 1" in got or " to 6" in got, (parameter.name, got)
            assert got.endswith(f", got {text!r}")
        else:
            assert abs(got) <= LARGEST, (parameter.name, got)
            assert text in ("-1", "0"), parameter.name


@pytest.mark.parametrize("workers", ["0", "10000", "1-10000"])
def test_the_bounds_are_accepted(workers: str) -> None:
    assert options_of("serve", "--workers", workers).workers == workers
