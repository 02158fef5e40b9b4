"""Settings that a process makes through the C library: of its memory, and the end of its parent."""

import ctypes
import json
import os
import resource
import subprocess
import sys
from contextlib import ExitStack

import psutil
import pytest

from tests.loops import HANG_S
from uncork_workers.process.libc import keep_freed_memory

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")

COUNT_FAULTS = """
import json, resource
size = 8_000_000
from uncork_workers.process.libc import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * size
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps([faults() for _ in range(5)]))
"""


def faults(**environment: str) -> list[int]:
    """Count the page faults of allocating 8 MB five times in a new process."""
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environment}
    command = [sys.executable, "-c", COUNT_FAULTS]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=HANG_S)
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


# It reports its pid to the parent, then sleeps.
CHILD = """
import os, sys, time
from uncork_workers.process.libc import die_with
sys.platform = sys.argv[2]
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}, str(os.getpid()), sys.argv[1]])
"""
# The thread that polls on other systems works on Linux too.
PLATFORMS = ["linux", "darwin"] if sys.platform == "linux" else [sys.platform]


def test_a_process_dies_when_its_parent_is_killed() -> None:
    with ExitStack() as stack:
        parents = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-S", "-c", PARENT, platform], stdout=subprocess.PIPE)
            )
            for platform in PLATFORMS
        ]
        children = []
        for parent in parents:
            assert parent.stdout is not None
            children.append(psutil.Process(int(parent.stdout.readline())))
            parent.kill()
        for child in children:
            child.wait(timeout=HANG_S)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_whose_parent_has_ended_already_goes_at_once(platform: str) -> None:
    command = [sys.executable, "-c", CHILD, "1", platform]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=HANG_S)
    assert done.stdout == ""


MIB = 2**20


def limited(code: str) -> str:
    """Run code in a process that has limited its data to 600 MiB; return what it prints."""
    first = "import resource; from uncork_workers.process.libc import limit_data"
    code = f"{first}; limit_data({600 * MIB})\n{code}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_allocations_beyond_the_limit_of_data_raise() -> None:
    """The process lives."""
    code = f"""
small = bytearray({100 * MIB})
try:
    large = bytearray({700 * MIB})
except MemoryError:
    print("raised", len(small) // {MIB})
"""
    assert limited(code) == "raised 100"


def test_the_limit_of_data_is_not_raised_above_one_that_is_set() -> None:
    """The hard limit stays as it is."""
    code = "print(resource.getrlimit(resource.RLIMIT_DATA))"
    _, most = resource.getrlimit(resource.RLIMIT_DATA)

    assert limited(code) == str((600 * MIB, most))
    lower = f"resource.setrlimit(resource.RLIMIT_DATA, ({500 * MIB}, {500 * MIB})); limit_data({600 * MIB})"
    assert limited(f"{lower}; {code}") == str((500 * MIB, 500 * MIB))
