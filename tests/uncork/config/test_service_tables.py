"""The tables ``[services.NAME]`` of the configuration file, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.uncork.config.asking import options_of
from uncork.config.sources import Configuration

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


def values_of(service: Configuration) -> dict[str, Any]:
    return {name: setting.value for name, setting in service.settings.items()}


def test_each_service_has_settings_of_its_own(file: Path) -> None:
    file.write_text(SEVERAL)
    options = options_of("serve", "--config", file)

    digits, wine = options.services["digits"], options.services["wine-2"]
    assert list(options.services) == ["digits", "wine-2"]
    assert values_of(digits) == {
        "target": ["a.py:Digits"],
        "max_worker_memory": "2GiB",
        "environment": ["MODEL=/models/digits", "THREADS=2", "SCALE=0.5"],
    }
    assert digits.settings["max_worker_memory"].source.name == f"{file}: services.digits.max-worker-memory"
    assert [(kind.name, one.api, one.argument, one.value, one.source) for kind, one in digits.overrides] == [
        ("FILE", "predict", "mb_max_latency", 100, f"{file}: services.digits.api.predict.mb-max-latency"),
        ("FILE", "predict", "policy", "aimd", f"{file}: services.digits.api.predict.policy"),
    ]
    assert values_of(wine) == {"target": ["b.py:Wine"], "workers": "2-4", "environment": ["MODEL=a=b"]}
    assert not wine.overrides
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
