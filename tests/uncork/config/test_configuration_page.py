"""docs/reference/configuration.md: its tables are those of the code, its files and variables can be read."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import read_environment
from uncork.config.file import read_file
from uncork.config.names import OF_SERVICES, settings_of
from uncork.config.option_fields import option_parameters, parameter_info
from uncork.server.server_options import ServerOptions
from uncork_workers.wire.overrides import ARGUMENTS
from uncork_workers.wire.schema import ApiDescription

PAGE = (Path(__file__).parents[3] / "docs/reference/configuration.md").read_text()
FENCED = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def rows() -> Iterator[str]:
    both = option_parameters(ServerOptions)
    yield from (row(name, one) for name, one in settings_of(CONFIGURABLE["serve"]).items() if name in both)
    for command in CONFIGURABLE:
        yield from (
            row(name, one) for name, one in settings_of(CONFIGURABLE[command]).items() if name not in both
        )


def row(name: str, parameter: inspect.Parameter) -> str:
    info = parameter_info(parameter.annotation)
    assert info is not None
    kind = " (argument)" if name in ("target", "urls") else ""
    default = info.show_default if isinstance(info.show_default, str) else shown(parameter.default)
    return f"| `{name}`{kind} | {default} | {info.help} |"


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


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return str(found[1])


def test_every_setting_is_on_the_page() -> None:
    assert [line for line in rows() if line not in PAGE.splitlines()] == []


def test_the_page_has_no_other_settings() -> None:
    headings = re.findall(r"^## (Settings of .*)$", PAGE, re.MULTILINE)
    listed = [
        line for heading in headings for line in section(heading).splitlines() if line.startswith("| `")
    ]
    assert len(listed) == len(list(rows()))


def test_the_arguments_of_an_api_have_their_defaults() -> None:
    [file] = [content for language, content in FENCED.findall(section("Arguments of `@api`"))]
    values = tomllib.loads(file)["api"]["predict"]
    assert tuple(values) == ARGUMENTS
    api = ApiDescription(name="predict", route="/predict", input={})
    defaults = {"route": api.route, **msgspec.structs.asdict(api.settings)}
    assert {name: values[name] for name, one in defaults.items() if one is not None} == {
        name: one for name, one in defaults.items() if one is not None
    }


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
    cells = re.findall(r"^\| (`.*?) \|", section("Several services"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(OF_SERVICES)


def test_its_variables_can_be_read() -> None:
    variables = dict(re.findall(r"^(UNCORK_\w+)=(\S+)$", PAGE, re.MULTILINE))

    found = read_environment(
        {name: text.strip("'\"") for name, text in variables.items()}, "serve", CONFIGURABLE
    )
    assert len(found.settings) + len(found.overrides) == len(variables) > 1
