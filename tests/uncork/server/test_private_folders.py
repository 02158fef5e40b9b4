"""Folders of sockets: who may be in them, and what becomes of those that nobody needs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from uncork.server.private_folders import is_private, make_private, own_folder, shared_folders

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
