"""Result files: one that cannot be written does not cost the measurement, whose table is printed anyway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.loadtests.test_compare import ROUNDS, comparison
from tests.loadtests.test_loadtest_command import outcome
from tests.loadtests.tuning.test_tune import TUNED
from uncork.cli.app import app
from uncork_workers.extras import install_command

FULL = Path("/dev/full")
TRAFFIC = ["--shape", "2", "--rate", "5"]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "measure", "result", "shown"),
    [
        (["loadtest", "http://127.0.0.1:1/x", *TRAFFIC], "loadtest.command.measure", outcome(), "answered"),
        (["compare", "m:S", *TRAFFIC], "compare.command.measure", comparison(*ROUNDS), "medians over"),
        (["tune", "m:S", *TRAFFIC, "--goal-ms", "50"], "tune.command.find", TUNED, "--mb-max-batch-size 32"),
        (["simulate", "--load", "0.5", "--seeds", "1", "--requests", "100"], None, None, "ratios to fixed:0"),
    ],
)
def test_a_full_disk_does_not_hide_the_table(
    command: list[str], measure: str | None, result: Any, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if measure is not None:
        monkeypatch.setattr(f"uncork.cli.{measure}", lambda *_, **__: result)
    done = CliRunner().invoke(app, [*command, "--json", str(FULL)])

    assert done.exit_code == 1
    assert shown in done.stdout
    assert done.stderr.startswith(f"uncork {command[0]}: [Errno 28] No space left on device")


def test_figures_are_made_only_for_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> bytes:
        raise AssertionError("the figures were encoded")

    monkeypatch.setattr("uncork.cli.loadtest.command.measure", lambda *_, **__: outcome())
    monkeypatch.setattr("uncork.cli.loadtest.command.as_json", never)
    done = CliRunner().invoke(app, ["loadtest", "http://127.0.0.1:1/x", *TRAFFIC])

    assert "answered" in done.stdout
    assert done.exception is None or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("command", "module", "extra", "says"),
    [
        (
            ["loadtest", "http://h/x", *TRAFFIC, "--report", "r.html"],
            "plotly",
            "loadtest",
            "--report requires ",
        ),
        (["compare", "m:S", *TRAFFIC], "scipy", "loadtest", "compare requires "),
        (["simulate", "--plot", "a.html"], "plotly", "loadtest", "--plot requires "),
        (["serve", "service.py:Echo", "--reload"], "watchfiles", "reload", "--reload requires "),
    ],
)
def test_a_library_that_is_missing_is_told(
    command: list[str], module: str, extra: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module, f"{module}.graph_objects"):
        monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(app, command)

    assert done.exit_code == 2
    assert f"{says}{module}; run {install_command(extra)}" in done.stderr
