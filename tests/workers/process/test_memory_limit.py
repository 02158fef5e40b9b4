"""The limit of a worker's memory."""

import pytest

from uncork_workers.process.memory_limit import MemoryLimit

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
