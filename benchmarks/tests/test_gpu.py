"""Parts of scripts/gpu-evidence on machines without a GPU; models only where PyTorch is installed."""

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.harness.paths import ROOT
from uncork_loadtests.servers import BenchError

SCALE = gpu.Scale(on_gpu=False, rounds=1, seconds=0.5, processes=1, patience=100)
STAND_IN = """
from uncork import Service, api
from uncork.adapters import Json

class Results(Service):
    @api(input=Json())
    def tensor(self, rows):
        return rows
"""


def printed(
    capsys: pytest.CaptureFixture[str], part: gpu.Part, *, limit_s: float = 1
) -> tuple[bool, list[str]]:
    """Run a part; return whether it succeeded, and its lines without bars between empty cells."""
    succeeded = gpu.run("part", part, limit_s, scale=SCALE, until=time.monotonic() + 100 * limit_s)
    lines = capsys.readouterr().out.splitlines()
    return succeeded, ["|".join(cell.strip() for cell in line.split("|") if cell.strip()) for line in lines]


def test_a_part_that_fails_says_why_after_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def part(scale: gpu.Scale) -> Iterator[gpu.Row]:
        yield gpu._said("one", "fine")
        raise BenchError("two\nlines")

    assert printed(capsys, part) == (False, ["part: one|fine", "part|**failed**: BenchError: two lines"])


def test_a_part_that_needs_what_is_missing_does_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    def part(scale: gpu.Scale) -> Iterator[gpu.Row]:
        yield [str(importlib.import_module("there_is_no_such_module"))]

    assert printed(capsys, part) == (True, ["part|not run: No module named 'there_is_no_such_module'"])


def test_a_part_ends_at_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    def part(scale: gpu.Scale) -> Iterator[gpu.Row]:
        signal.pause()
        yield []

    succeeded, [line] = printed(capsys, part, limit_s=0.001)
    assert (succeeded, line) == (False, "part|**failed**: OutOfTime: not done within 0 s")


@pytest.mark.slow
def test_gauges_are_read_from_a_stand_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gpu.py").write_text(STAND_IN)
    monkeypatch.setattr(gpu, "SERVICE", tmp_path / "gpu.py")

    succeeded, [line] = printed(capsys, gpu.gauges, limit_s=10)

    assert succeeded
    assert line.endswith("memory_total_bytes 8.59e+10, worker_memory_bytes 1.074e+09, utilization_ratio 0.87")


@pytest.mark.long_run
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_quick_parts_run_on_the_cpu() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--cpu", "--parts", "results,memory"]

    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory: room for 7, 256 clients, learned" in done.stdout
