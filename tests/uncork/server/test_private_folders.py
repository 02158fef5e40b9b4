"""Folders of sockets and private files: who may be in them, and what becomes of those that nobody needs."""

import os
import resource
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from uncork.server.private_folders import (
    is_private,
    make_private,
    own_folder,
    read_private,
    shared_folders,
    write_private,
)

KILLED = """
import os, signal
from uncork.server.private_folders import own_folder
with own_folder() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def test_a_folder_is_this_processs_alone(temporary: Path) -> None:
    with own_folder() as one, own_folder() as another:
        assert one != another
        assert is_private(one)
        assert {one.parent, another.parent} == {temporary}
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed(temporary: Path) -> None:
    """By the next one that starts, with what is in it; nothing else is."""
    others = [temporary / "uncork-1", temporary / "other-1"]
    for other in others:
        other.mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    (left / "workers.sock").touch()
    assert left.is_dir()

    with own_folder():
        assert not left.exists()

    assert sorted(temporary.iterdir()) == sorted(others)


def test_a_folder_that_others_can_look_into_is_not_private(temporary: Path) -> None:
    shared, link, file = temporary / "shared", temporary / "link", temporary / "file"
    make_private(temporary / "own")
    make_private(temporary / "own")
    shared.mkdir(mode=0o755)
    link.symlink_to(temporary / "own")
    file.touch(mode=0o600)

    assert is_private(temporary / "own")
    for other in (shared, link, file, temporary / "none"):
        assert not is_private(other)
    with pytest.raises(OSError, match="must be a folder of this user that no other user can access"):
        make_private(shared)


def test_a_session_has_a_folder_of_its_own(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that was started outside of it is found in the other."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    general = temporary / f"uncork-{os.getuid()}"
    assert shared_folders() == [Path("/run/user/7/uncork"), general]
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert shared_folders() == [general]


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
