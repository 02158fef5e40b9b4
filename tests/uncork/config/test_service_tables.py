"""The tables ``[services.NAME]`` of the configuration file, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.uncork.config.asking import options_of, refused
from uncork.config.names import OF_SERVICES

SEVERAL = """
workers = 2

[services.digits]
target = "a.py:Digits"
max-worker-memory = "2GiB"
environment = { MODEL = "/models/digits", THREADS = 2, SCALE = 0.5 }

[services.digits.api.predict]
mb-max-latency = 100
policy = "aimd"

[services.wine-2]
target = ["b.py:Wine"]
workers = "2-4"
environment = ["MODEL=a=b"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "uncork.toml"


def test_each_service_has_settings_of_its_own(file: Path) -> None:
    file.write_text(SEVERAL)
    options = options_of("serve", "--config", file)

    digits, wine = options.services["digits"], options.services["wine-2"]
    assert list(options.services) == ["digits", "wine-2"]
    assert digits.values == {
        "target": ["a.py:Digits"],
        "max_worker_memory": "2GiB",
        "environment": ["MODEL=/models/digits", "THREADS=2", "SCALE=0.5"],
    }
    assert digits.sources["max_worker_memory"].name == f"{file}: services.digits.max-worker-memory"
    assert [
        (kind.name, one.api, one.argument, one.value, one.source) for kind, one in digits.api_overrides
    ] == [
        ("FILE", "predict", "mb_max_latency", 100, f"{file}: services.digits.api.predict.mb-max-latency"),
        ("FILE", "predict", "policy", "aimd", f"{file}: services.digits.api.predict.policy"),
    ]
    assert wine.values == {"target": ["b.py:Wine"], "workers": "2-4", "environment": ["MODEL=a=b"]}
    assert not wine.api_overrides
    assert (options.workers, options.target, options.api_overrides) == ("2", None, [])


def test_a_table_of_variables_can_stand_at_the_top_too(file: Path) -> None:
    for text in ("environment = { A = 1, B = 'x y' }", "[serve.environment]\nA = 1\nB = 'x y'"):
        file.write_text(text)
        assert options_of("serve", "--config", file).variables == {"A": "1", "B": "x y"}


def test_the_tables_of_services_are_nothing_to_a_proxy(file: Path) -> None:
    """One file can be for both commands."""
    file.write_text(SEVERAL.replace("workers = 2\n", "port = 1\n[serve]\nworkers = 2\n"))
    assert options_of("proxy", "--config", file).port == 1
    assert options_of("serve", "--config", file).workers == "2"


_KNOWN = ", ".join([*OF_SERVICES, "api"])
_A_NAME = (
    "the name of a service must begin with a letter, followed by letters, digits, - or _, and may end in @ "
    "and the number of a version"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[services]\ntarget = 'a.py:A'",
            "services.target must be a table with the settings of a service, got 'a.py:A'",
        ),
        ("services = 1", "services must be a table of services, such as [services.digits], got 1"),
        ("[services.2d]", f"services.2d: {_A_NAME}; got '2d'; choose another name"),
        ("[services.'a b']", f"services.a b: {_A_NAME}; got 'a b'; choose another name"),
        ("[services.'']", f"services.: {_A_NAME}; got ''; choose another name"),
        ("[services.'é']", f"services.é: {_A_NAME}; got 'é'; choose another name"),
        ("[services.v2]", "services.v2: the gateway itself uses the path /v2; choose another name"),
        ("[services.docs]", "services.docs: the gateway itself uses the path /docs; choose another name"),
        (
            "[services.readyz]",
            "services.readyz: the gateway itself uses the path /readyz; choose another name",
        ),
        (
            "[services.a]\nworkrs = 2",
            "services.a.workrs is not a setting of a service; did you mean workers?",
        ),
        ("[services.a]\nx = 2", f"services.a.x is not a setting of a service; expected one of {_KNOWN}"),
        (
            "[services.a]\nmax-queue-rows = 2",
            "services.a.max-queue-rows is a setting of the whole server; move it to the top of the file",
        ),
        (
            "[services.a]\nport = 2",
            "services.a.port is a setting of the whole server; move it to the top of the file",
        ),
        (
            "[services.a]\ntimeout = 2",
            "services.a.timeout is a setting of an API; move it to [services.a.api.NAME]",
        ),
        (
            "[services.a]\nworkers = 2\nWorkers = 2",
            "services.a.Workers is not a setting of a service; did you mean workers?",
        ),
        (
            "[services.a]\nmax_worker_memory = '1GB'\nmax-worker-memory = '1GB'",
            "services.a.max-worker-memory is set twice, also as {file}: services.a.max_worker_memory",
        ),
        ("[services.a]\nwarmup-seconds = '2'", "services.a.warmup-seconds must be a number, got '2'"),
        ("[services.a]\nworkers = true", "services.a.workers must be a string, got True"),
        ("[services.a]\nown_routes = 1", "services.a.own_routes must be true or false, got 1"),
        (
            "[services.a]\nmb_max_batch_size = 0",
            "services.a.mb_max_batch_size must be a whole number from 1 to 1000000000, got '0'",
        ),
        (
            "[services.a]\nworkers = 'two'",
            "services.a.workers must be a number from 0 to 10000 or a range such as 2-16, got 'two'",
        ),
        (
            "[services.a]\npython = '/no/such'",
            "services.a.python: '/no/such' is neither an executable Python interpreter nor the folder of a "
            "virtual environment",
        ),
        (
            "[services.a]\nenvironment = 1",
            "services.a.environment must be a string or a list of strings, got 1",
        ),
        (
            "[services.a]\nenvironment = ['A=1', 2]",
            "services.a.environment must be a string or a list of strings, got ['A=1', 2]",
        ),
        ("[services.a]\nenvironment = ['A']", "services.a.environment must be NAME=VALUE, got 'A'"),
        ("[services.a]\nenvironment = {'1A' = 2}", "services.a.environment must be NAME=VALUE, got '1A=2'"),
        (
            "[services.a.environment]\nA = true",
            "services.a.environment.A must be a string or a number, got True",
        ),
        (
            "[services.a.environment]\nA = [1]",
            "services.a.environment.A must be a string or a number, got [1]",
        ),
        ("[services.a]\napi = 1", "services.a.api must be a table of settings, got 1"),
        (
            "[services.a.api]\npredict = 1",
            "services.a.api.predict must be a table with the settings of an API, such as [api.predict], "
            "got 1",
        ),
        (
            "[services.a.api.predict]\ntimout = 1",
            "services.a.api.predict.timout: @api has no argument timout; did you mean timeout?",
        ),
        (
            "[services.a.api.predict]\ntimeout = 0",
            "services.a.api.predict.timeout: timeout must be a positive number of seconds, got 0",
        ),
    ],
)
def test_wrong_tables_are_told(text: str, says: str, file: Path) -> None:
    file.write_text(text)
    told = refused("serve", "--config", file)
    assert told == f"uncork serve: {file}: {says.replace('{file}', str(file))}\n"
