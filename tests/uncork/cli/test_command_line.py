"""What the command line says of itself, and of options that it cannot read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from typer.testing import CliRunner

from uncork.cli.app import app


def said(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints that is called wrongly, in one line."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", **(environment or {})})
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("columns", [50, 80, 200])
@pytest.mark.parametrize("group", [(), ("config",)])
def test_summaries_of_commands_are_whole(group: tuple[str, ...], columns: int) -> None:
    result = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": str(columns)})

    _, _, commands = result.output.partition("Commands:")
    assert "..." not in commands
    summaries = commands.replace("\n  ", "\0").split("\0")[1:]
    sentences = " ".join(commands.split()).count(". ") + 1
    assert sentences == len([one for one in summaries if not one.startswith(" ")])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("serve", "x", "--workers", "two"),
            "'--workers': must be a number from 0 to 10000 or a range such as 2-16, got 'two'",
        ),
        (
            ("serve", "x", "--workers", "0-2"),
            "'--workers': must be a number from 0 to 10000 or a range such as 2-16, got '0-2'",
        ),
        (
            ("serve", "x", "--workers", "3-2"),
            "'--workers': must be a number from 0 to 10000 or a range such as 2-16, got '3-2'",
        ),
        (
            ("serve", "x", "--workers", "1.5"),
            "'--workers': must be a number from 0 to 10000 or a range such as 2-16, got '1.5'",
        ),
        (("serve", "x", "--workers", "0"), "--workers 0 requires --worker-port"),
        (("serve", "x", "--port", "70000"), "must be a whole number from 0 to 65535, got '70000'"),
        (("serve", "x", "--header-timeout", "soon"), "must be a number from 0.1 to 1000000000, got 'soon'"),
        (
            ("serve", "x", "--mb-max-latency", "soon"),
            "'--mb-max-latency': must be a number up to 1000000000, got",
        ),
        (("serve", "x", "--log-level", "loud"), "must be one of debug, info, warning, error, got 'loud'"),
        (("reload", "--port", "http"), "'--port': must be a whole number from 1 to 65535, got 'http'"),
        (
            ("config", "serve", "--workers", "two"),
            "must be a number from 0 to 10000 or a range such as 2-16, got 'two'",
        ),
        (("serve", "x", "--policy", "corky"), "unknown policy 'corky'"),
        (("serve", "x", "--gpus", "all"), "'--gpus': 'all' does not name GPUs"),
        (("tune", "x"), "Missing option '--goal-ms'"),
    ],
)
def test_a_value_that_cannot_be_read_is_told_with_what_is_accepted(
    arguments: tuple[str, ...], says: str
) -> None:
    assert says in said(*arguments)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (
            "UNCORK_WORKERS",
            "two",
            "UNCORK_WORKERS must be a number from 0 to 10000 or a range such as 2-16, got 'two'",
        ),
        ("UNCORK_RELOAD", "maybe", "UNCORK_RELOAD must be true or false, got 'maybe'"),
        (
            "UNCORK_LOG_LEVEL",
            "loud",
            "UNCORK_LOG_LEVEL must be one of debug, info, warning, error, got 'loud'",
        ),
        ("UNCORK_GPUS", "all", "UNCORK_GPUS: 'all' does not name GPUs"),
    ],
)
def test_variables_are_told_in_the_same_words(variable: str, value: str, says: str) -> None:
    assert f"uncork config serve: {says}" in said("config", "serve", environment={variable: value})
