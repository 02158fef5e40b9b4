"""Settings of commands: every option in file and environment, and which of them counts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.uncork.config.asking import options_of
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import LOCUST_VARIABLES, variable_of
from uncork.config.names import settings_of
from uncork.config.option_fields import kind_of, read_size
from uncork.config.sources import Kind
from uncork_loadtests.locust.options import VARIABLES

# For values that are not just any text or list.
SAMPLES: dict[str, Any] = {
    "policy": "aimd",
    "protocol": "v2",
    "log_level": "error",
    "log_format": "json",
    "max_worker_memory": "5GB",
    "worker_memory_limit": "6GB",
    "gpus": "7,",
    "workers": "2-7",
    "on": "ray://head:10001",
    "worker_address": "gateway:7000",
    "fair_by": "X-Tenant",
    "cors_origin": ["https://a.example", "https://b.example"],
    "python": sys.executable,
    "environment": ["A=1", "B="],
}


def samples(command: str) -> dict[str, Any]:
    """A value for each setting. It differs from the default and from the values of the other settings."""
    found = {}
    for at, (name, parameter) in enumerate(settings_of(CONFIGURABLE[command]).items()):
        kind = kind_of(parameter)
        of_kind = {
            bool: not parameter.default,
            int: 70 + at,
            float: at + 0.5,
            list: [f"x-{at}", "x-two"],
        }
        found[name] = SAMPLES.get(name, of_kind.get(kind, f"text {at}"))
    return found


def in_toml(value: Any) -> str:
    """The value in a file; JSON will do for those here."""
    return msgspec.json.encode(value).decode()


def in_environment(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def said(options: Any, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in names}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


@pytest.mark.parametrize("command", CONFIGURABLE)
def test_every_option_can_stand_in_the_file(command: str, tmp_path: Path) -> None:
    """At its top, or in the table of the command, where hyphens are for underscores."""
    values = samples(command)
    file = tmp_path / "uncork.toml"
    keys = {name: name.replace("_", "-") for name in values}
    for table, prefix, key_of in (("", "", {name: name for name in values}), (command, f"{command}.", keys)):
        lines = [f"{key_of[name]} = {in_toml(value)}" for name, value in values.items()]
        file.write_text("\n".join([*([f"[{table}]"] if table else []), *lines]))
        options = options_of(command, "--config", file)
        assert said(options, values) == values
        names = {name: source.name for name, source in options.sources.items() if name != "config"}
        assert names == {name: f"{file}: {prefix}{key_of[name]}" for name in values}


@pytest.mark.parametrize("command", CONFIGURABLE)
def test_every_option_can_stand_in_the_environment(command: str) -> None:
    values = samples(command)
    variables = {name: f"UNCORK_{name.upper()}" for name in values}
    environment = {variables[name]: in_environment(value) for name, value in values.items()}
    options = options_of(command, environment=environment)

    assert {name: variable_of(name) for name in values} == variables
    assert said(options, values) == values
    assert {name: source.name for name, source in options.sources.items()} == variables
    assert options_of(command, environment=dict.fromkeys(environment, "")).sources == {}


@pytest.mark.parametrize("places", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("name", ["gpus", "warmup_seconds"])
def test_the_command_line_comes_before_the_environment_before_the_file(
    name: str, places: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    """Whichever of them say something; a zero says something."""
    in_file, in_variable, on_line = places
    values: tuple[Any, ...] = ("1,", "2,", "3,") if name == "gpus" else (1, 2, 0)
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


def test_the_server_of_a_load_test_does_without_configured_listeners(tmp_path: Path) -> None:
    """The configured server may run; only workers may connect, to a free port."""
    file = tmp_path / "uncork.toml"
    lines = ["host = '0.0.0.0'", "grpc_port = 1", "tls_cert = 'c'", "tls_client_ca = 'a'", "worker_port = 2"]
    file.write_text("\n".join([*lines, "fair_by = 'x-a'", "[services.a]", "worker_port = 3"]))
    environment = {"UNCORK_CONFIG": str(file), "UNCORK_UDS": "s", "UNCORK_TLS_KEY": "k"}
    environment["UNCORK_LOAD_TEST"] = "1"
    options = options_of("serve", "--port", 4, environment=environment)

    names = ("host", "port", "uds", "grpc_port", "tls_cert", "tls_key", "tls_client_ca", "worker_port")
    assert [getattr(options, name) for name in names] == ["127.0.0.1", 4, None, None, None, None, None, 0]
    assert options.services["a"].settings["worker_port"].value == 0
    assert options.fair_by == "x-a"
    for arguments, on in (((), "ray"), (("--on", "ray"), "local")):
        on_ray = options_of("serve", *arguments, environment={**environment, "UNCORK_ON": on})
        assert (on_ray.worker_port, on_ray.services["a"].settings["worker_port"].value) == (2, 3)
    file.write_text(f"on = 'ray'\n{file.read_text()}")
    for arguments, on in (((), "local"), (("--on", "local"), "ray")):
        local = options_of("serve", *arguments, environment={**environment, "UNCORK_ON": on})
        assert (local.worker_port, local.services["a"].settings["worker_port"].value) == (0, 0)


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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1000000", 10**6),
        ("500MB", 500 * 10**6),
        ("2GiB", 2 * 2**30),
        ("1.5 gib", 3 * 2**29),
        ("64k", 64_000),
        ("64Ki", 65_536),
        (" 3TB ", 3 * 10**12),
        ("7B", 7),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "0", "0.1", "1.5.2", "2 gigabytes", "1e9", "iB", "5iB", "nan"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"is not a size; give a number of bytes from 1 to 1125899906842624, or a number",
    ):
        read_size(text)


@given(st.integers(1, 10**14))
def test_bytes_are_what_they_say(size: int) -> None:
    assert read_size(str(size)) == size
