"""Copies of services on a node: made once, and removed when nobody has used them for a day."""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from uncork.server.private_folders import own_folder
from uncork_workers.ray.code_shipping import unpack

DAY_S = 24 * 3600
_USE = """
import sys
from pathlib import Path
from uncork_workers.ray.code_shipping import unpack
unpack(b"", sys.argv[2], parent=Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def archive(files: int = 1) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as writing:
        for number in range(files):
            writing.writestr(f"folder/{number}.py", "1")
    return made.getvalue()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return tmp_path / "node"


@pytest.fixture
def copy(node: Path) -> Callable[[str], Path]:
    """Make or use a copy, and stop using it."""

    def made(digest: str) -> Path:
        folder, in_use = unpack(archive(), digest, parent=node)
        os.close(in_use)
        return folder

    return made


def copies(node: Path) -> set[str]:
    return {one.name for one in node.iterdir()} - {"copies.lock"}


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder, (then, then))


def test_several_processes_may_unpack_at_once(node: Path) -> None:
    """One of them makes the folder, the others use it, and nothing else is left."""
    content = archive(files=200)  # takes long enough that some of them meet
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(unpack, content, "a", parent=node) for _ in range(32)]

    for job in jobs:
        folder, in_use = job.result()
        os.close(in_use)
        assert folder == node / "a"
    assert len([*(node / "a/folder").iterdir()]) == 200
    assert copies(node) == {"a"}


def test_a_new_copy_replaces_unused_old_ones(node: Path, copy: Callable[[str], Path]) -> None:
    copy("old")
    copy("recent")
    age(node / "old", DAY_S + 60)
    age(node / "recent", DAY_S - 60)
    copy("recent")
    assert copies(node) == {"old", "recent"}
    age(node / "recent", DAY_S - 60)
    copy("new")
    assert copies(node) == {"recent", "new"}


def test_an_old_copy_that_is_used_again_stays(node: Path, copy: Callable[[str], Path]) -> None:
    copy("old")
    age(node / "old", DAY_S + 60)
    copy("old")
    copy("new")
    assert copies(node) == {"old", "new"}


def test_a_copy_stays_until_its_process_ends(node: Path, copy: Callable[[str], Path]) -> None:
    """Even if that is killed."""
    copy("used")
    command = [sys.executable, "-c", _USE, str(node), "used"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"ready\n"
        age(node / "used", DAY_S + 60)
        copy("new")
        assert copies(node) == {"used", "new"}
        user.kill()
    copy("newer")
    assert copies(node) == {"new", "newer"}


def test_what_a_killed_process_left_is_replaced(node: Path, copy: Callable[[str], Path]) -> None:
    (node / "partial/folder").mkdir(parents=True)
    (node / "partial/folder/1.py").touch()
    node.chmod(0o700)
    assert [file.name for file in (copy("a") / "folder").iterdir()] == ["0.py"]
    assert copies(node) == {"a"}


def test_a_gateway_on_the_node_does_not_remove_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it removes folders of gateways that were killed, from the same temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, in_use = unpack(archive(), "a")
    os.close(in_use)
    with own_folder():
        assert folder.parent.parent == tmp_path
        assert (folder / "folder/0.py").is_file()


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    writable = tmp_path / "writable"
    writable.mkdir()
    writable.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for parent in (writable, link):
        with pytest.raises(OSError, match="only this user"):
            unpack(b"", "digest", parent=parent)
