"""``uncork tune`` with a real service. Whether a busy machine keeps to the advice, no test asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.server import PROBE, run_uncork

pytestmark = pytest.mark.long_run


def test_a_service_is_tuned_and_proved(tmp_path: Path) -> None:
    """Measured, advised, loaded; the exit code is 1 only with a warning."""
    file = tmp_path / "f.json"
    done = run_uncork(
        "tune", PROBE, "--shape", "2", "--goal-ms", "2000", "--rate", "100", "--max-batch-size", "3",
        "--max-workers", "2", "--seconds", "0.5", "--json", str(file),
    )  # fmt: skip
    found = json.loads(file.read_text())

    assert [size["rows"] for size in found["measured"]["sizes"]] == [1, 2, 3]
    # It sleeps for 5 ms.
    assert all(size["median_ms"] >= 5 for size in found["measured"]["sizes"])
    assert found["met"]
    assert found["advice"]["workers"] == found["proof"]["workers"] == 1
    assert found["proof"]["measured"]["in_goal"] > 0
    assert f"uncork serve {PROBE} --workers 1 " in done.stdout
    assert done.returncode in ((0, 1) if found["warnings"] else (0,))


def test_a_goal_below_a_batch_cannot_be_kept() -> None:
    """Exit code 1, and why."""
    done = run_uncork("tune", PROBE, "--shape", "2", "--goal-ms", "3", "--rate", "10")

    assert done.returncode == 1
    assert "longer than the goal of 3 ms; raise --goal-ms" in done.stderr
