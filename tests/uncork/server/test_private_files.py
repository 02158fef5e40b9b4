"""Small private files on a real file system: what is refused, and that the old content stays."""

import os
import resource
import stat
import time
from pathlib import Path

import pytest

from uncork.server.private_folders import read_private, write_private

MOST = 1000


def read(folder: Path) -> bytes:
    return read_private(folder, "state", most_bytes=MOST)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b"


def test_a_file_is_for_this_user_alone(folder: Path) -> None:
    write_private(folder, "state", b"one")
    write_private(folder, "state", b"two")

    assert read(folder) == b"two"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "state").stat().st_mode) == 0o600
    assert [one.name for one in folder.iterdir()] == ["state"]


def test_a_missing_file_or_folder_is_told_apart(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(folder)
    folder.mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        read(folder)


def test_a_large_file_is_not_read(folder: Path) -> None:
    write_private(folder, "state", b"x" * MOST)
    assert read(folder) == b"x" * MOST

    write_private(folder, "state", b"x" * (MOST + 1))
    with pytest.raises(OSError, match=f"/state has more than {MOST} bytes"):
        read(folder)


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """Neither a linked folder nor a linked file; a new file takes the place of the link."""
    target = tmp_path / "target"
    target.write_bytes(b"other")
    folder.mkdir(parents=True)
    (folder / "state").symlink_to(target)
    (tmp_path / "link").symlink_to(folder)

    with pytest.raises(OSError, match="symbolic"):
        read(folder)
    for act in (read, lambda place: write_private(place, "state", b"x")):
        with pytest.raises(OSError, match="link"):
            act(tmp_path / "link")
    write_private(folder, "state", b"own")

    assert (target.read_bytes(), read(folder)) == (b"other", b"own")


def test_a_pipe_does_not_block(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.mkfifo(folder / "state", 0o600)

    with pytest.raises(OSError, match="/state is not a file"):
        read(folder)


def test_a_folder_in_its_place_is_refused(folder: Path) -> None:
    (folder / "state").mkdir(parents=True)

    with pytest.raises(OSError, match="state"):
        read(folder)
    with pytest.raises(OSError, match="state"):
        write_private(folder, "state", b"x")
    assert [one.name for one in folder.iterdir()] == ["state"]


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_what_others_can_write_is_not_believed(folder: Path, mode: int) -> None:
    write_private(folder, "state", b"x")
    (folder / "state").chmod(mode)
    with pytest.raises(OSError, match=r"other users can write to .*/state"):
        read(folder)

    (folder / "state").chmod(0o600)
    folder.chmod(mode)
    with pytest.raises(OSError, match=r"other users can write to .*/b"):
        read(folder)
    with pytest.raises(OSError, match=r"other users can write to .*/b"):
        write_private(folder, "state", b"y")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_files_of_others_are_not_believed(folder: Path) -> None:
    write_private(folder, "state", b"x")
    os.chown(folder / "state", 12345, -1)
    with pytest.raises(OSError, match="/state belongs to another user"):
        read(folder)
    os.chown(folder, 12345, -1)
    with pytest.raises(OSError, match="/b belongs to another user"):
        write_private(folder, "state", b"y")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_said(folder: Path) -> None:
    write_private(folder, "state", b"x")
    folder.chmod(0o500)

    with pytest.raises(PermissionError):
        write_private(folder, "state", b"y")
    assert read(folder) == b"x"


def test_a_full_disk_leaves_the_old_content(folder: Path) -> None:
    """Here a limit of this process takes the place of the disk's."""
    write_private(folder, "state", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="large"):
            write_private(folder, "state", b"x" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert read(folder) == b"old"
    assert [one.name for one in folder.iterdir()] == ["state"]


def test_what_killed_processes_left_is_removed_after_an_hour(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, age_s in {"state.old": 4000, "state.new": 10, "other.old": 4000}.items():
        (folder / name).touch()
        os.utime(folder / name, times=(time.time() - age_s,) * 2)

    write_private(folder, "state", b"x")

    assert sorted(one.name for one in folder.iterdir()) == ["other.old", "state", "state.new"]
