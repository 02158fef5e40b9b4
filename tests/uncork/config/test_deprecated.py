"""Deprecated names of settings work, and say what replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.uncork.config.asking import options_of, refused, run
from uncork.config import deprecated
from uncork.config.deprecated import RENAMED, Renamed


@pytest.fixture(autouse=True)
def _renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings have had other names."""
    monkeypatch.setitem(RENAMED, "process_count", Renamed("workers", "0.9"))
    monkeypatch.setitem(RENAMED, "goal", Renamed("mb_max_latency", "0.9"))


def warnings(*arguments: object, environment: Mapping[str, str] | None = None) -> list[str]:
    deprecated._warn.cache_clear()
    done = run("serve", "service.py:S", *arguments, environment=environment)
    assert done.exit_code == 0, done.output
    return done.stderr.splitlines()


def warning(shown: str, name: str) -> str:
    return f"warning: {shown} is deprecated, and will be removed in 0.9; use {name}"


@pytest.mark.parametrize("arguments", [("--process-count", 3), ("--process-count=3",)])
def test_an_option_with_its_old_name(arguments: tuple[object, ...]) -> None:
    assert options_of("serve", "service.py:S", *arguments).workers == "3"
    assert warnings(*arguments) == [warning("--process-count", "workers")]


@pytest.mark.parametrize("table", ["", "[serve]\n"])
def test_a_key_with_its_old_name(table: str, tmp_path: Path) -> None:
    file = tmp_path / "uncork.toml"
    file.write_text(f"{table}process-count = 3\n[api.predict]\ngoal = 50\n")
    options = options_of("serve", "service.py:S", "--config", file)

    assert options.workers == "3"
    assert [(one.argument, one.value) for one in options.overrides] == [("mb_max_latency", 50)]
    of_serve = "serve." if table else ""
    assert warnings("--config", file) == [
        warning(f"{file}: {of_serve}process-count", "workers"),
        warning(f"{file}: api.predict.goal", "mb_max_latency"),
    ]


def test_a_variable_with_its_old_name() -> None:
    environment = {"UNCORK_PROCESS_COUNT": "3", "UNCORK_API_PREDICT_GOAL": "50"}
    options = options_of("serve", "service.py:S", environment=environment)

    assert options.workers == "3"
    assert [(one.argument, one.value) for one in options.overrides] == [("mb_max_latency", 50)]
    assert warnings(environment=environment) == [
        warning("UNCORK_API_PREDICT_GOAL", "mb_max_latency"),
        warning("UNCORK_PROCESS_COUNT", "workers"),
    ]


def test_a_setting_under_both_names_is_refused() -> None:
    environment = {"UNCORK_PROCESS_COUNT": "3", "UNCORK_WORKERS": "4"}

    says = "UNCORK_WORKERS is set twice, also as UNCORK_PROCESS_COUNT"
    assert says in refused("serve", "service.py:S", environment=environment)


def test_current_names_are_not_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "uncork.toml"
    file.write_text("workers = 2\n")

    assert warnings("--config", file, "--port=0", environment={"UNCORK_HOST": "127.0.0.1"}) == []
