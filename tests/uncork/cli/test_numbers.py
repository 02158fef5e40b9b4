"""Numbers out of range, for every option of every command that takes a number."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.uncork.config.asking import options_of, refused
from uncork.cli.app import COMMANDS, app
from uncork.cli.command import Command
from uncork.cli.simulate.scenarios import closed_cells
from uncork.config.environment import variable_of
from uncork.config.errors import WrongUsage

TEXTS = ["18446744073709551616", "1e400", "-1e400", "inf", "nan", "-1", "0", "x"]
LARGEST = 2**50
_commands: Any = typer.main.get_command(app)
NAMES = [name for name in COMMANDS if isinstance(_commands.commands[name], Command)]


def outcome(parameter: Any, command: Any, text: str) -> Any:
    """Return the value of an option, or the message if the command line refuses it."""
    try:
        return parameter.process_value(typer.Context(command), text)
    except typer.BadParameter as error:
        return error.message


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_in_range_or_refused(name: str) -> None:
    command = _commands.commands[name]
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


@pytest.mark.parametrize("text", ["18446744073709551616", "nan"])
@pytest.mark.parametrize(
    ("command", "name"), [("serve", "max_body_bytes"), ("serve", "header_timeout"), ("proxy", "concurrency")]
)
def test_the_message_names_option_variable_or_key(command: str, name: str, text: str, tmp_path: Path) -> None:
    """Of one setting of each kind; `tests/uncork/config` has all names."""
    flag = f"--{name.replace('_', '-')}"
    file = tmp_path / "uncork.toml"
    file.write_text(f"{name} = {text}")

    assert f"'{flag}': must be a" in refused(command, flag, text).replace("\n", " ")
    assert f"{variable_of(name)} must be a" in refused(command, environment={variable_of(name): text})
    assert f"{name} must be a" in refused(command, "--config", file)


@pytest.mark.parametrize(
    ("option", "text", "accepted"),
    [
        ("--workers", "18446744073709551616", "from 0 to 10000"),
        ("--workers", "1-18446744073709551616", "from 0 to 10000"),
        ("--workers", "10001", "from 0 to 10000"),
        ("--max-worker-memory", "18446744073709551616", "from 1 to 1125899906842624"),
        ("--max-worker-memory", "999999999999999TiB", "from 1 to 1125899906842624"),
        ("--gpus", "18446744073709551616", "does not name GPUs"),
        ("--gpus", "0", "at least 1"),
    ],
)
def test_numbers_in_texts_have_a_range(option: str, text: str, accepted: str) -> None:
    said = " ".join(refused("serve", option, text).split())

    assert option in said
    assert accepted in said


@pytest.mark.parametrize("clients", ["18446744073709551616", "4,100001"])
def test_the_clients_of_a_simulation_have_a_range(clients: str) -> None:
    with pytest.raises(WrongUsage, match=r"^--clients must be from 1 to 100000, got "):
        closed_cells({}, clients)


@pytest.mark.parametrize("workers", ["0", "10000", "1-10000"])
def test_the_bounds_are_accepted(workers: str) -> None:
    assert options_of("serve", "--workers", workers).workers == workers
