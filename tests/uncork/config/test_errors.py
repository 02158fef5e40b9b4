"""What is wrong in file and environment: told with its place, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.uncork.config.asking import refused
from uncork.cli.app import app
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import read_environment
from uncork.config.errors import WrongUsage
from uncork.config.file import read_file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workrs = 2", "workrs is not a setting of uncork serve; did you mean workers?"),
        ("[serve]\nmax-quue-rows = 2", "serve.max-quue-rows is not a setting of uncork serve; did you "),
        ("xyz = 2", "xyz is not a setting of uncork serve; uncork serve --help lists the settings"),
        ("[proxi]\nport = 2", "proxi is not a setting of uncork serve; did you mean proxy?"),
        ("[proxy]\nworkers = 2", "proxy.workers is a setting of uncork serve; move it to [serve]"),
        ("concurrency = 2", "concurrency is a setting of uncork proxy; move it to [proxy]"),
        ("idempotent = false", "idempotent is a setting of an API; move it to [api.NAME]"),
        ('config = "x"', "config is not a setting of uncork serve"),
        ("serve = 1", "serve must be a table of settings, got 1"),
        ("workers = 1\n[serve]\nworkers = 1", "serve.workers is set twice, also as "),
        ("max-queue-rows = 1\nmax_queue_rows = 1", "max_queue_rows is set twice, also as "),
        ('max_body_bytes = "2"', "max_body_bytes must be a whole number, got '2'"),
        ("max_body_bytes = true", "max_body_bytes must be a whole number, got True"),
        ("header-timeout = false", "header-timeout must be a number, got False"),
        ('reload = "yes"', "reload must be true or false, got 'yes'"),
        ("host = true", "host must be a string, got True"),
        ("[proxy]\nurls = 1", ""),
        ("max_body_bytes = 0", "max_body_bytes must be a whole number from 1 to 1125899906842624, got '0'"),
        ('log-level = "loud"', "log-level must be one of debug, info, warning, error, got 'loud'"),
        ('gpus = "all"', "gpus: 'all' does not name GPUs; give a count such as 2, or "),
        ('policy = "corky"', "policy: unknown policy 'corky'; available: cork, "),
        ('fair-by = "X Tenant"', "fair-by: 'X Tenant' is not a header name; give a name such as X-Client-Id"),
        ("api = 1", "api must be a table of settings, got 1"),
        ("[api]\ntimeout = 1", "api.timeout must be a table with the settings of an API, such as [api."),
        ("[api.predict]\ntimout = 1", "timout: @api has no argument timout; did you mean timeout?"),
        ("[api.predict]\npython = 1", "python: @api has no argument python; expected one of route, "),
        ("[api.predict]\ninput = 1", "api.predict.input: input can be set only in code, with @api"),
        ("[api.predict]\ntimeout = 0", "api.predict.timeout: timeout must be a positive number of seconds"),
        ("[api.predict]\npolicy = 5", "api.predict.policy: policy must be a string, got 5"),
        ("[api.predict]\nroute = '/metrics'", "route: route '/metrics' is reserved by the gateway"),
        ("[api.predict]\nallowed_batch_sizes = [4, 2]", "must be a list of increasing integers from 1 to"),
        ("[api.p]\nmb_max_latency = 1\nmb-max-latency = 2", "mb-max-latency is set twice, also as "),
        ("workers = ", "is not valid TOML: "),
    ],
)
def test_wrong_files_are_told(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "uncork.toml"
    file.write_text(text)
    command = "serve"
    if not says:
        command, says = "proxy", "proxy.urls must be a string or a list of strings, got 1"

    told = refused(command, "--config", file)
    assert told.startswith(f"uncork {command}: ")
    assert str(file) in told
    assert says in told


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.toml"
    told = f"uncork serve: --config: {nowhere}: No such file or directory\n"
    assert refused("serve", "--config", nowhere) == told
    assert refused("serve", environment={"UNCORK_CONFIG": str(nowhere)}) == told
    assert f"{tmp_path}: Is a directory" in refused("proxy", "--config", tmp_path)
    nowhere.write_bytes(b"\xff")
    assert f"{nowhere} is not valid TOML: " in refused("serve", "--config", nowhere)


@pytest.mark.parametrize(
    ("command", "variable", "text", "says"),
    [
        ("serve", "WORKRS", "2", " is not a setting of uncork serve; did you mean UNCORK_WORKERS?"),
        ("serve", "XYZXYZ", "2", " is not a setting of uncork serve; unset it, or correct it: "),
        ("serve", "workers", "2", " is not a setting"),
        ("serve", "CONCURRENCY", "2", " is a setting of uncork proxy, not of uncork serve; unset it"),
        ("proxy", "WORKERS", "2", " is a setting of uncork serve, not of uncork proxy; unset it"),
        ("proxy", "API_PREDICT_TIMEOUT", "2", " is a setting of an API, and uncork proxy has none; unset it"),
        ("serve", "PORT", "x", " must be a whole number from 0 to 65535, got 'x'"),
        ("serve", "RELOAD", "maybe", " must be true or false, got 'maybe'"),
        ("serve", "LOG_LEVEL", "loud", " must be one of debug, info, warning, error, got 'loud'"),
        ("serve", "GPUS", "all", ": 'all' does not name GPUs"),
        ("serve", "MAX_WORKER_MEMORY", "much", ": 'much' is not a size; give a number of bytes from 1 to "),
        ("proxy", "KEY_HEADER", "a x:y", ": 'x:y' is not a header name; give a name such as X-Client-Id"),
        ("serve", "API_PREDICT_TIMEOUT", "5s", ": timeout must be a positive number of seconds, got '5s'"),
        ("serve", "API_PREDICT_INPUT", "1", ": input can be set only in code, with @api"),
        (
            *("serve", "API_MY_MODEL_MB_MAX_LATENSY", "1"),
            " does not end in an argument of @api; did you mean UNCORK_API_MY_MODEL_MB_MAX_LATENCY?",
        ),
        (
            *("serve", "API_KEYFILE", "x"),
            " does not end in an argument of @api; did you mean UNCORK_API_KEY_FILE?",
        ),
        (
            *("serve", "API_TIMEOUT", "1"),
            " does not end in an argument of @api; use UNCORK_API_NAME_ followed by one of ROUTE, ",
        ),
    ],
)
def test_wrong_variables_are_told(command: str, variable: str, text: str, says: str) -> None:
    told = refused(command, environment={f"UNCORK_{variable}": text})

    assert told.startswith(f"uncork {command}: UNCORK_{variable}{says}")


@pytest.mark.parametrize(
    ("command", "says"), [("serve", "missing argument TARGET"), ("proxy", "missing argument URL")]
)
def test_a_command_needs_what_it_is_for(command: str, says: str) -> None:
    """But it may come from anywhere."""
    result = CliRunner().invoke(app, [command, "--port", "0"])

    assert result.exit_code == 2
    assert result.stderr.startswith(f"uncork {command}: {says}")


NAMES = st.sampled_from(["workers", "max-queue-rows", "api", "serve", "proxy", "policy", "p", "timeout"])
SCALARS = ['"x"', "true", "1.5", "nan", "2020-01-01", "[]", "-1", "0", "3"]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3).map(
        lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
    ),
    max_leaves=6,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)
TEXTS = TABLES.map(lambda table: "\n".join(f"{key} = {value}" for key, value in table.items()))
VARIABLES = st.from_regex(r"UNCORK_(API_[A-Z_]+_TIMEOUT|[A-Z_]+)", fullmatch=True)


def complaint(read: Callable[[], object]) -> str | None:
    """What is said against something, if it cannot be read; anything but this fails the test."""
    try:
        read()
    except WrongUsage as error:
        return str(error)
    return None


@given(text=st.text() | TEXTS)
def test_whatever_a_file_says_it_is_read_or_refused(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_text(text, encoding="utf-8", errors="replace")

    told = complaint(lambda: read_file(file, "serve", CONFIGURABLE))
    assert told is None or str(file) in told


@given(environment=st.dictionaries(VARIABLES, st.text()))
def test_whatever_the_environment_says_it_is_read_or_refused(environment: dict[str, str]) -> None:
    told = complaint(lambda: read_environment(environment, "serve", CONFIGURABLE))

    assert told is None or told.startswith(tuple(environment))
