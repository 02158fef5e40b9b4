"""What the command line says of itself, and of options that it cannot read."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from uncork.cli.app import app
from uncork.cli.command import PANELS
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.option_fields import option_parameters
from uncork_dispatcher import CORE_IS_COMPILED


@pytest.mark.parametrize("columns", [50, 80, 200])
@pytest.mark.parametrize("group", [(), ("config",)])
def test_summaries_of_commands_are_whole(group: tuple[str, ...], columns: int) -> None:
    result = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": str(columns)})

    _, _, commands = result.output.partition("Commands:")
    assert "..." not in commands
    summaries = commands.replace("\n  ", "\0").split("\0")[1:]
    sentences = " ".join(commands.split()).count(". ") + 1
    assert sentences == len([one for one in summaries if not one.startswith(" ")])


@pytest.mark.parametrize("command", ["serve", "proxy"])
def test_help_names_every_option_and_help_all_explains_it(command: str) -> None:
    """Each option is in one group at most, and no name is broken."""
    options = {
        text
        for name in option_parameters(CONFIGURABLE[command])
        if (text := f"--{name.replace('_', '-')}") not in ("--target", "--urls")
    }
    short, full = (CliRunner().invoke(app, [command, flag]).output for flag in ("--help", "--help-all"))

    explained, _, named = short.partition("More options")
    names = [*re.findall(r"(?m)^  (--[a-z-]+)", explained), *named.split()]
    assert sorted(options) == sorted(name for name in names if name in options)
    assert sorted(options) == sorted(set(re.findall(r"(?m)^  (--[a-z-]+)", full)) - {"--help"})
    assert len(short) < len(full) / 3
    assert sorted(name for names in PANELS.values() for name in names) == sorted(
        {name for names in PANELS.values() for name in names}
    )


def test_the_version_names_how_the_core_runs() -> None:
    result = CliRunner().invoke(app, ["--version"])

    core = "compiled core" if CORE_IS_COMPILED else "pure Python"
    assert (result.exit_code, result.stdout) == (0, f"uncork {version('uncork')} ({core})\n")


def test_a_server_does_not_load_what_only_others_need() -> None:
    """The HTTP client of the proxy and the highlighter of terminals would take a quarter of its start."""
    unneeded = ("httpx", "yaml", "pygments", "uncork_gateway.proxy", "uncork_loadtests")
    code = f"import sys, uncork.cli.app, uncork.cli.serve.command; print({{*{unneeded}}} & {{*sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
