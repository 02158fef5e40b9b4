"""The limit of a worker's memory, and the file that says that it is ready."""

from pathlib import Path

import pytest

from uncork_workers.process.remote_worker import MemoryLimit, ReadyFile

MIB = 2**20


def test_more_than_the_limit_is_too_much_for_later_gateways_too() -> None:
    """Only before its first batch a worker may drop the limit: batches may have taken the memory."""
    used = [9 * MIB, 10 * MIB, 12 * MIB]
    memory = MemoryLimit(10 * MIB, used_bytes=lambda: used.pop(0))
    for _ in range(2):
        memory.check_before_batches()

    assert [memory.excess() for _ in range(2)] == ["", "uses 12 MiB, more than the limit of 10 MiB,"]


def test_the_memory_is_that_of_this_process() -> None:
    assert MemoryLimit(1).excess() != ""
    assert MemoryLimit(2**50).excess() == ""


@pytest.mark.parametrize(
    ("path", "says"), [("missing/ready", "No such file or directory"), ("folder", "Is a directory")]
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, path: str, says: str) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(OSError, match=says):
        ReadyFile(tmp_path / path)


def test_a_file_that_cannot_be_written_later_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker serves without it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    ready = ReadyFile(folder / "ready")
    folder.rmdir()
    ready.create()
    ready.remove()

    assert caplog.messages == [f"cannot write {folder / 'ready'}: No such file or directory"]


def test_a_file_that_cannot_be_removed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An error would end the watchdog instead of the worker whose batch is overdue."""
    path = tmp_path / "ready"
    ready = ReadyFile(path)
    path.mkdir()
    ready.remove()

    assert caplog.messages == [f"cannot remove {path}: Is a directory"]
