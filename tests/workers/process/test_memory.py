"""Blocks of memory that are kept: seen from the page faults that getting them again costs."""

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
    """Page faults of getting 8 MB, five times one after the other, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, check=True, timeout=60
    )
    counted: list[int] = json.loads(done.stdout)
    return counted


@on_linux
def test_a_block_that_was_freed_is_had_again_for_nothing() -> None:
    """The first time it costs a fault for each page."""
    first, *others = faults()

    assert first > 1000
    assert max(others) < 100


@on_linux
def test_what_the_environment_says_is_left_alone() -> None:
    """Here: give everything back at once."""
    assert min(faults(MALLOC_MMAP_THRESHOLD_="65536")) > 1000


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only glibc has it."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())

    keep_freed_memory()
