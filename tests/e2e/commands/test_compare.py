"""``uncork compare`` with real servers. How fast any is, no test asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.server import PROBE, run_uncork

# Clients that wait for their answers void no run: when they ask is when they are asked to.
BRIEF = ("--clients", "4", "--shape", "2", "--seconds", "0.4", "--warmup-seconds", "0.1")


@pytest.mark.slow
def test_policies_are_compared(tmp_path: Path) -> None:
    picture, file = tmp_path / "p.html", tmp_path / "f.json"
    done = run_uncork(
        "compare", PROBE, "--policies", "cork,none", "--rounds", "2", *BRIEF,
        "--json", str(file), "--plot", str(picture),
    )  # fmt: skip
    figures = json.loads(file.read_text())

    assert done.returncode == 0, done.stderr
    assert [list(one) for one in figures["rounds"]["whole"]] == [["cork", "none"]] * 2
    cork, none = figures["results"]
    assert none["medians"]["batch_rows"] == 1 < cork["medians"]["batch_rows"]
    assert none["medians"]["gateway_cpu_us"] > 0
    assert figures["plan"]["goal_s"] == 60
    assert "ratios to cork" in done.stdout
    assert "Plotly.newPlot" in picture.read_text()
