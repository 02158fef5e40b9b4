"""Settings of commands: every option in file and environment, and which of them counts."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.uncork.config.asking import options_of
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import LOCUST_VARIABLES, variable_of
from uncork.config.names import settings_of
from uncork.config.option_fields import kind_of
from uncork.config.sources import Kind
from uncork_loadtests.locust.options import VARIABLES

EVERY = [(command, name) for command in CONFIGURABLE for name in settings_of(CONFIGURABLE[command])]
# For values that are not just any text or list; of each kind of others one value will do.
SAMPLES: dict[str, Any] = {
    "policy": "aimd",
    "protocol": "v2",
    "log_level": "error",
    "log_format": "json",
    "max_worker_memory": "5GB",
    "gpus": "7,",
    "workers": "2-7",
    "on": "ray://head:10001",
    "worker_address": "gateway:7000",
    "fair_by": "X-Tenant",
    "python": sys.executable,
    "environment": ["A=1", "B="],
}
OF_KIND: dict[type, Any] = {int: 70, float: 7.5, list: ["x-one", "x-two"]}


def sample(command: str, name: str) -> Any:
    """A value of a setting that is not its default."""
    kind = kind_of(settings_of(CONFIGURABLE[command])[name])
    if kind is bool:
        return not settings_of(CONFIGURABLE[command])[name].default
    return SAMPLES.get(name, OF_KIND.get(kind, "some text"))


def in_toml(value: Any) -> str:
    """The value in a file; JSON will do for those here."""
    return msgspec.json.encode(value).decode()


def in_environment(value: Any) -> str:
    """The value in a variable."""
    return " ".join(value) if isinstance(value, list) else str(value)


def said(options: Any, name: str) -> Any:
    """What is in force, paths as text."""
    value = getattr(options, name)
    return str(value) if isinstance(value, Path) else value


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_every_option_can_stand_in_the_file(command: str, name: str, tmp_path: Path) -> None:
    value = sample(command, name)
    file = tmp_path / "uncork.toml"
    for text, key in (
        (f"{name} = {in_toml(value)}", name),
        (f"[{command}]\n{name.replace('_', '-')} = {in_toml(value)}", f"{command}.{name.replace('_', '-')}"),
    ):
        file.write_text(text)
        options = options_of(command, "--config", file)
        assert said(options, name) == value
        assert options.sources[name].name == f"{file}: {key}"
        assert options.sources.keys() == {name, "config"}


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_every_option_can_stand_in_the_environment(command: str, name: str) -> None:
    value, variable = sample(command, name), variable_of(name)
    options = options_of(command, environment={variable: in_environment(value)})

    assert variable == f"UNCORK_{name.upper()}"
    assert said(options, name) == value
    assert options.sources[name].name == variable
    assert options_of(command, environment={variable: ""}).sources == {}


@pytest.mark.parametrize("places", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("name", ["workers", "port", "gpus", "warmup_seconds"])
def test_the_command_line_comes_before_the_environment_before_the_file(
    name: str, places: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    """Whichever of them say something; a zero says something."""
    in_file, in_variable, on_line = places
    texts = {"gpus": ("1,", "2,", "3,"), "workers": ("1", "2", "3")}
    values = texts.get(name, (1, 2, 0))
    file = tmp_path / "uncork.toml"
    file.write_text(f"{name} = {in_toml(values[0])}" if in_file else "")
    option = f"--{name.replace('_', '-')}"
    options = options_of(
        "serve",
        *((option, values[2]) if on_line else ()),
        environment={
            "UNCORK_CONFIG": str(file),
            **({variable_of(name): str(values[1])} if in_variable else {}),
        },
    )

    default = settings_of(CONFIGURABLE["serve"])[name].default
    expected = next((values[n] for n in (2, 1, 0) if places[n]), default)
    source = options.sources.get(name)
    assert getattr(options, name) == expected
    assert (source.kind if source else None) == next((Kind(n + 1) for n in (2, 1, 0) if places[n]), None)
    assert options.config == file


def test_the_file_of_the_command_line_comes_before_that_of_the_environment(tmp_path: Path) -> None:
    for name, workers in (("a", 2), ("b", 3)):
        (tmp_path / name).write_text(f"workers = {workers}")
    options = options_of(
        "serve", "--config", tmp_path / "a", environment={"UNCORK_CONFIG": str(tmp_path / "b")}
    )

    assert options.workers == "2"


def test_lists_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "uncork.toml"
    file.write_text('urls = ["http://a", "http://b"]\nretry = false\nkey-header = ["x-a"]')

    options = options_of("proxy", "--config", file, environment={"UNCORK_KEY_HEADER": "x-b  x-c"})
    assert (options.urls, options.retry, options.key_header) == (
        ["http://a", "http://b"],
        False,
        ["x-b", "x-c"],
    )
    given = options_of("proxy", "http://c", "--retry", "--config", file, environment={"UNCORK_RETRY": "no"})
    assert (given.urls, given.retry) == (["http://c"], True)


def test_one_file_can_be_for_both_commands(tmp_path: Path) -> None:
    """Each takes its own table; the apis are for uncork serve."""
    file = tmp_path / "uncork.toml"
    file.write_text("port = 1\n[serve]\nworkers = 2\n[proxy]\nconcurrency = 3\n[api.predict]\ntimeout = 4")

    serve, proxy = (options_of(command, "--config", file) for command in ("serve", "proxy"))
    assert (serve.port, serve.workers) == (1, "2")
    assert [one.value for one in serve.overrides] == [4]
    assert (proxy.port, proxy.concurrency) == (1, 3)


def test_variables_of_others_are_passed_over() -> None:
    """Of our locust file, of `uncork worker`, and those that Kubernetes sets for a service called uncork."""
    others = {
        "UNCORK_NODE": "machine-a",
        "UNCORK_PATH": "/predict",
        "UNCORK_SERVICE_HOST": "10.0.0.1",
        "UNCORK_SERVICE_PORT": "80",
        "UNCORK_SERVICE_PORT_HTTP": "80",
        "UNCORK_PORT": "tcp://10.0.0.1:80",
        "UNCORK_PORT_80_TCP": "tcp://10.0.0.1:80",
        "UNCORK_PORT_80_TCP_ADDR": "10.0.0.1",
        "UNCORK_DIGITS_SERVICE_HOST": "10.0.0.2",
        "UNCORK_DIGITS_PORT": "tcp://10.0.0.2:80",
        "UNCORK_API_SERVICE_HOST": "10.0.0.3",
    }

    assert options_of("serve", environment=others).sources == {}


def test_the_variables_of_the_locust_users_are_known() -> None:
    assert set(VARIABLES.values()) == LOCUST_VARIABLES
