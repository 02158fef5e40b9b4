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


OF_A_SERVICE = [
    ("workrs = 2", "workrs is not a setting of a service; did you mean workers?"),
    ("x = 2", f"x is not a setting of a service; expected one of {_KNOWN}"),
    ("port = 2", "port is a setting of the whole server; move it to the top of the file"),
    ("timeout = 2", "timeout is a setting of an API; move it to [services.a.api.NAME]"),
    ("workers = 2\nWorkers = 2", "Workers is not a setting of a service; did you mean workers?"),
    (
        "own_routes = true\nown-routes = true",
        "own-routes is set twice, also as {file}: services.a.own_routes",
    ),
    ("workers = 'two'", "workers must be a number from 0 to 10000 or a range such as 2-16, got 'two'"),
    (
        "python = '/no'",
        "python: '/no' is neither an executable Python interpreter nor the folder of a virtual environment",
    ),
    ("environment = 1", "environment must be a string or a list of strings, got 1"),
    ("environment = ['A=1', 2]", "environment must be a string or a list of strings, got ['A=1', 2]"),
    ("environment = ['A']", "environment must be NAME=VALUE, got 'A'"),
    ("environment = {'1A' = 2}", "environment must be NAME=VALUE, got '1A=2'"),
    ("environment.A = true", "environment.A must be a string or a number, got True"),
    ("environment.A = [1]", "environment.A must be a string or a number, got [1]"),
    ("api.p = 1", "api.p must be a table with the settings of an API, such as [api.predict], got 1"),
    ("api.p.timout = 1", "api.p.timout: @api has no argument timout; did you mean timeout?"),
]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[services]\na = 'a.py:A'",
            "services.a must be a table with the settings of a service, got 'a.py:A'",
        ),
        ("services = 1", "services must be a table of services, such as [services.digits], got 1"),
        *(
            (f"[services.'{name}']", f"services.{name}: {_A_NAME}; got '{name}'; choose another name")
            for name in ("2d", "a b", "", "é")
        ),
        *(
            (
                f"[services.{name}]",
                f"services.{name}: the gateway itself uses the path /{name}; choose another name",
            )
            for name in ("v2", "docs", "readyz")
        ),
        *((f"[services.a]\n{text}", f"services.a.{says}") for text, says in OF_A_SERVICE),
    ],
)
def test_wrong_tables_are_told(text: str, says: str, file: Path) -> None:
    file.write_text(text)
    told = refused("serve", "--config", file)
    assert told == f"uncork serve: {file}: {says.replace('{file}', str(file))}\n"
