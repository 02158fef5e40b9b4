"""The limit of a worker's memory."""

import resource
import subprocess
import sys

import pytest

from uncork_workers.process.remote_worker import MemoryLimit

MIB = 2**20


def limit(limit_bytes: int | None, *used_bytes: int) -> MemoryLimit:
    left = list(used_bytes)
    return MemoryLimit(limit_bytes, used_bytes=lambda: left.pop(0))


def test_only_more_than_the_limit_is_too_much() -> None:
    memory = limit(10 * MIB, 9 * MIB, 10 * MIB, 12 * MIB)

    excesses = [memory.excess() for _ in range(3)]
    assert excesses == ["", "", "uses 12 MiB, more than the limit of 10 MiB,"]


def test_without_a_limit_nothing_is_read() -> None:
    memory = limit(None)
    memory.check_before_batches()

    assert memory.excess() == ""


def test_a_model_that_exceeds_the_limit_by_itself_has_none(caplog: pytest.LogCaptureFixture) -> None:
    memory = limit(10 * MIB, 11 * MIB)
    for _ in range(2):
        memory.check_before_batches()

    assert memory.excess() == ""
    assert caplog.messages == [
        "this worker uses 11 MiB, more than the limit of 10 MiB, before its first batch; it will not leave "
        "for its memory. Raise --max-memory"
    ]


def test_a_later_gateway_does_not_lift_the_limit() -> None:
    """The batches for the first one may have taken the memory."""
    memory = limit(10 * MIB, 9 * MIB, 11 * MIB)
    for _ in range(2):
        memory.check_before_batches()

    assert memory.excess() != ""


def test_the_memory_is_that_of_this_process() -> None:
    assert MemoryLimit(1).excess() != ""
    assert MemoryLimit(2**50).excess() == ""


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
