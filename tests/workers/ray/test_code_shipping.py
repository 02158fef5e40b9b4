"""Packing the folder of a service."""

import os
import re
from pathlib import Path

import pytest

from uncork_workers.ray.code_shipping import Packer, unpack
from uncork_workers.ray.messages import Code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "service"
    (made / "weights").mkdir(parents=True)
    (made / "svc.py").write_text("1")
    (made / "weights/a.bin").write_bytes(b"\0" * 1000)
    return made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    made = tmp_path / "archives"
    made.mkdir()
    return made


def unpacked(code: Code, parent: Path) -> set[str]:
    folder, in_use = unpack(Path(code.archive).read_bytes(), code.digest, parent=parent)
    os.close(in_use)
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_what_is_packed_can_be_unpacked(folder: Path, into: Path, tmp_path: Path) -> None:
    code = Packer(folder, into).pack()

    assert unpacked(code, tmp_path / "node") == {"svc.py", "weights/a.bin"}
    assert (tmp_path / "node" / code.digest / "svc.py").read_text() == "1"


def test_an_archive_that_was_removed_is_made_again(folder: Path, into: Path) -> None:
    """As by what cleans the folder of temporary files, while a server runs for weeks."""
    packer = Packer(folder, into)
    code = packer.pack()
    Path(code.archive).unlink()

    assert packer.pack() == code
    assert Path(code.archive).exists()


def test_two_archives_are_kept(folder: Path, into: Path) -> None:
    """A launch may still need the one before."""
    packer, codes = Packer(folder, into), list[Code]()
    for size in (1, 2, 3):
        (folder / "svc.py").write_text("1" * size)
        codes.append(packer.pack())

    assert {str(file) for file in into.iterdir()} == {code.archive for code in codes[1:]}


def test_the_digest_depends_on_names_and_contents_only(folder: Path, into: Path) -> None:
    packer = Packer(folder, into)
    first = packer.pack()
    os.utime(folder / "svc.py", (1, 1))
    touched = packer.pack()
    (folder / "svc.py").write_text("2")
    changed = packer.pack()
    (folder / "svc.py").write_text("1")
    (folder / "weights/a.bin").rename(folder / "weights/b.bin")
    renamed = packer.pack()

    assert touched == first
    assert len({first.digest, changed.digest, renamed.digest}) == 3


def test_caches_environments_and_links_are_excluded(folder: Path, into: Path, tmp_path: Path) -> None:
    for name in (".git", "__pycache__", "venv", "env", "cache"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
    (folder / "env/pyvenv.cfg").touch()
    (folder / "cache/CACHEDIR.TAG").touch()
    (folder / "old.pyc").touch()
    (folder / "other").symlink_to(tmp_path)
    (folder / "linked.py").symlink_to(folder / "svc.py")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")

    code = Packer(folder, into).pack()

    assert unpacked(code, tmp_path / "node") == {"svc.py", "weights/a.bin", "linked.py"}


def test_a_name_that_is_not_utf_8_is_an_error(folder: Path, into: Path) -> None:
    """As of a file from an old archive. It is escaped, so that each log can have it."""
    (folder / os.fsdecode(b"caf\xe9")).mkdir()
    (folder / os.fsdecode(b"caf\xe9/menu.txt")).touch()

    message = f"{folder} contains caf\\udce9/menu.txt, a name that is not UTF-8; rename it"
    with pytest.raises(OSError, match=re.escape(message)):
        Packer(folder, into).pack()


def test_a_folder_that_is_too_large_is_an_error(folder: Path, into: Path) -> None:
    assert Packer(folder, into, most_bytes=1001).pack()
    message = (
        f"{folder} contains 1 kB, more than the 1 kB that are copied to Ray's nodes; largest: "
        "weights (1 kB), svc.py (0 kB). Put large files into the image"
    )
    with pytest.raises(OSError, match=re.escape(message)):
        Packer(folder, into, most_bytes=1000).pack()
