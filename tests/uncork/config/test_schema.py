"""The schema of the configuration file: it agrees with the reader of the file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from tests.markdown_pages import DOCS, blocks
from tests.uncork.config.asking import options_of, refused
from tests.uncork.config.test_service_tables import SEVERAL
from tests.uncork.config.test_settings import in_toml, samples
from uncork.cli.app import app
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.schema import file_schema
from uncork_workers.wire.overrides import ARGUMENTS

SCHEMA = file_schema(CONFIGURABLE)
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def accepts(text: str) -> bool:
    return bool(VALIDATOR.is_valid(tomllib.loads(text)))


@pytest.mark.parametrize("command", CONFIGURABLE)
def test_it_has_every_setting(command: str) -> None:
    """At the top and in the table of the command, in both spellings."""
    for name, value in samples(command).items():
        for key in (name, name.replace("_", "-")):
            assert accepts(f"{key} = {in_toml(value)}"), key
            assert accepts(f"[{command}]\n{key} = {in_toml(value)}"), key
            assert SCHEMA["properties"][command]["properties"][key]["description"]


def test_it_has_every_argument_of_an_api() -> None:
    arguments = SCHEMA["properties"]["api"]["additionalProperties"]["properties"]
    assert {name.replace("-", "_") for name in arguments} == set(ARGUMENTS)


GOOD = [
    SEVERAL,
    "workers = 2",
    'workers = "2-4"',
    'target = ["a.py:A", "b.py:B"]',
    'log-level = "debug"',
    "[api.predict]\nmb-max-latency = 100\nallowed_batch_sizes = [1, 2]\nroute = '/x'\ncost = 'text'",
    "port = 1\n[serve]\nworkers = 2\n[proxy]\nconcurrency = 3\n[api.predict]\ntimeout = 4",
]
WRONG = [
    "workrs = 2",
    "port = true",
    "port = '1'",
    "port = 65536",
    "weight = -1",
    "log-level = 'loud'",
    "target = 1",
    "access-log = 1",
    "timeout = 'long'",
    "config = 'other.toml'",
    "api = 1",
    "[serve]\nconcurrency = 1",
    "[api.predict]\ntimeut = 4",
    "[api.predict]\ntimeout = 'x'",
    "[services.a]\nport = 1",
    "[services.a]\nenvironment = { A = [1] }",
    "[services]\na = 1",
]


@pytest.mark.parametrize("text", GOOD)
def test_it_accepts_what_the_command_does(text: str, tmp_path: Path) -> None:
    assert accepts(text)
    file = tmp_path / "uncork.toml"
    file.write_text(text)
    options_of("serve", "--config", file)


@pytest.mark.parametrize("text", WRONG)
def test_it_refuses_what_the_command_does(text: str, tmp_path: Path) -> None:
    assert not accepts(text)
    file = tmp_path / "uncork.toml"
    file.write_text(text)
    assert refused("serve", "--config", file)


def test_it_accepts_the_examples_of_the_page() -> None:
    examples = [block.code for block in blocks(DOCS / "reference/configuration.md", "toml")]
    assert examples
    assert all(map(accepts, examples))


def test_it_is_printed() -> None:
    result = CliRunner().invoke(app, ["config", "schema"])
    assert result.exit_code == 0
    printed: dict[str, Any] = json.loads(result.output)
    assert printed == json.loads(json.dumps(SCHEMA))
    jsonschema.Draft7Validator.check_schema(printed)
