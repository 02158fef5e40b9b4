"""The file that says that a worker is ready."""

from pathlib import Path

import pytest

from uncork_workers.process.remote_worker import ReadyFile


def test_the_file_exists_between_create_and_remove(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    ready = ReadyFile(path)
    seen = [path.exists()]
    for act in (ready.create, ready.create, ready.remove, ready.remove, ready.create):
        act()
        seen.append(path.exists())

    assert seen == [False, True, True, False, False, True]


def test_a_file_that_was_left_is_removed(tmp_path: Path) -> None:
    """As by a process that was killed."""
    path = tmp_path / "ready"
    path.touch()
    ReadyFile(path)

    assert not path.exists()


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
