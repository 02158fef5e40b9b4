"""Reuse of freed memory, seen from page faults."""

import ctypes
import json
import subprocess
import sys

import pytest

from uncork_workers.process.memory import keep_freed_memory

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")

CHILD = """
import json, resource
size = 8_000_000
from uncork_workers.process.memory import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * size
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps([faults() for _ in range(5)]))
"""


def faults(**environment: str) -> list[int]:
    """Count the page faults of allocating 8 MB five times in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, check=True, timeout=60
    )
    counted: list[int] = json.loads(done.stdout)
    return counted


@on_linux
def test_a_block_that_was_freed_is_had_again_for_nothing() -> None:
    first, *others = faults()

    assert first > 1000
    assert max(others) < 100


@on_linux
def test_what_the_environment_says_is_left_alone() -> None:
    """Here: return all memory at once."""
    assert min(faults(MALLOC_MMAP_THRESHOLD_="65536")) > 1000


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())

    keep_freed_memory()
