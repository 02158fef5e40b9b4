"""docs/reference/configuration.md: its tables are those of the code, its files and variables can be read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import read_environment, variable_of
from uncork.config.file import read_file
from uncork.config.names import OF_SERVICES, settings_of
from uncork.config.option_fields import option_parameters, parameter_info
from uncork.server.listeners import ListenerOptions
from uncork.server.server_options import ServerOptions
from uncork_workers.wire.overrides import ARGUMENTS
from uncork_workers.wire.schema import ApiDescription

PAGE = (Path(__file__).parents[3] / "docs/reference/configuration.md").read_text()
FENCED = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def rows() -> Iterator[str]:
    both = {*option_parameters(ServerOptions), *option_parameters(ListenerOptions)}
    yield from (row(name, one) for name, one in settings_of(CONFIGURABLE["serve"]).items() if name in both)
    for command in CONFIGURABLE:
        yield from (
            row(name, one) for name, one in settings_of(CONFIGURABLE[command]).items() if name not in both
        )
    for argument in ARGUMENTS:
        yield f"| `{argument}` | `UNCORK_API_PREDICT_{argument.upper()}` | {default_of(argument)} |"


def row(name: str, parameter: inspect.Parameter) -> str:
    info = parameter_info(parameter.annotation)
    assert info is not None
    option = f"`--{name.replace('_', '-')}`"
    if name in ("target", "urls"):
        option = "argument"
    default = info.show_default if isinstance(info.show_default, str) else shown(parameter.default)
    return f"| `{name}` | {option} | `{variable_of(name)}` | {default} | {info.help} |"


def shown(default: object) -> str:
    match default:
        case bool():
            return str(default).lower()
        case None | "":
            return "none"
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def default_of(argument: str) -> str:
    """What an argument of ``@api`` is if nobody says anything."""
    api = ApiDescription(name="name", route="/NAME", input={})
    return shown(api.route if argument == "route" else getattr(api.settings, argument))


def test_every_setting_is_on_the_page() -> None:
    begins = [" | ".join(line.split(" | ")[:3]) if "UNCORK_API_" in line else line for line in rows()]
    lacking = [line for line in begins if not any(have.startswith(line) for have in PAGE.splitlines())]
    assert lacking == []


def test_the_page_has_no_other_settings() -> None:
    expected = {line.split(" | ")[0] for line in rows()}
    assert {line.split(" | ")[0] for line in PAGE.splitlines() if "| `UNCORK_" in line} == expected


@pytest.mark.parametrize("number", range(sum(language == "toml" for language, _ in FENCED.findall(PAGE))))
def test_its_files_can_be_read(number: int, tmp_path: Path) -> None:
    text = [content for language, content in FENCED.findall(PAGE) if language == "toml"][number]
    file = tmp_path / "uncork.toml"
    file.write_text(text)
    commands = [name for name in CONFIGURABLE if f"[{name}]" in text] or ["serve"]

    for command in commands:
        found = read_file(file, command, CONFIGURABLE)
        assert found.settings or found.overrides or found.services


def test_the_settings_that_a_service_can_have_are_listed() -> None:
    [section] = re.findall(r"^## Several services\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(OF_SERVICES)


def test_its_variables_can_be_read() -> None:
    variables = dict(re.findall(r"^(UNCORK_\w+)=(\S+)$", PAGE, re.MULTILINE))

    found = read_environment(
        {name: text.strip("'\"") for name, text in variables.items()}, "serve", CONFIGURABLE
    )
    assert len(found.settings) + len(found.overrides) == len(variables) > 1
