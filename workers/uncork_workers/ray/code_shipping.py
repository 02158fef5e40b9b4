"""Pack the folder of a service for other machines, and unpack it there."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from uncork_workers.ray.messages import Code
from uncork_workers.wire.frames import encodable

MOST_BYTES = 100 * 10**6
_LARGEST_NAMED = 3
_EXCLUDED = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".ipynb_checkpoints"}
# Files that mark a folder as a cache, and as a virtual environment.
_MARKERS = ("CACHEDIR.TAG", "pyvenv.cfg")
_KEPT_S = 24 * 3600.0
# Not "lock": gateways remove folders of killed gateways by that name.
_LOCK = "copies.lock"
# A copy that is being made or removed.
_PARTIAL = "partial"


class Packer:
    """Packs a folder as often as its content changes.

    Version control, caches, virtual environments, links to folders and special files are left out.

    Args:
        into: a folder for the archives.
        most_bytes: the largest total size of the files.
    """

    def __init__(self, folder: Path, into: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._into = into
        self._most_bytes = most_bytes
        self._packed: tuple[list[tuple[str, int, int]], Code] | None = None

    def pack(self) -> Code:
        """Return the folder as an archive.

        Raises:
            OSError: if a file cannot be read, its name is not UTF-8, or the files are too large.
        """
        files = sorted(_files(self._folder))
        names = (str(file.relative_to(self._folder)) for file in files)
        if bad := next((name for name in names if encodable(name) != name), ""):
            folder = encodable(str(self._folder))
            raise OSError(f"{folder} contains {encodable(bad)}, a name that is not UTF-8; rename it")
        status = [(file, file.stat()) for file in files]
        self._check_size({file: one.st_size for file, one in status})
        stamps = [(str(file), one.st_mtime_ns, one.st_size) for file, one in status]
        # What cleans the folder of temporary files may have removed the archive.
        if self._packed is not None and self._packed[0] == stamps and Path(self._packed[1].archive).exists():
            return self._packed[1]
        code = self._write(files)
        self._packed = stamps, code
        return code

    def _write(self, files: list[Path]) -> Code:
        digest = hashlib.sha256()
        making = self._into / "making.zip"
        with zipfile.ZipFile(making, "w") as archive:
            for file in files:
                name, content = file.relative_to(self._folder).as_posix(), file.read_bytes()
                digest.update(b"%d %d " % (len(name.encode()), len(content)))
                digest.update(name.encode() + content)
                archive.writestr(name, content)
        code = Code(digest.hexdigest(), str(self._into / f"{digest.hexdigest()}.zip"))
        making.replace(code.archive)
        # A launch may still need the one before.
        kept = {code.archive, *([] if self._packed is None else [self._packed[1].archive])}
        for file in self._into.glob("*.zip"):
            if str(file) not in kept:
                file.unlink(missing_ok=True)
        return code

    def _check_size(self, sizes: dict[Path, int]) -> None:
        total = sum(sizes.values())
        if total <= self._most_bytes:
            return
        entries: Counter[str] = Counter()
        for file, size in sizes.items():
            entries[file.relative_to(self._folder).parts[0]] += size
        largest = ", ".join(f"{name} ({_mb(size)})" for name, size in entries.most_common(_LARGEST_NAMED))
        raise OSError(
            f"{self._folder} contains {_mb(total)}, more than the {_mb(self._most_bytes)} that are copied to "
            f"Ray's nodes; largest: {largest}. Put large files into the image of the nodes or on a shared "
            "disk, and load them from there"
        )


def _files(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        here = Path(path)
        if here != folder and any((here / marker).exists() for marker in _MARKERS):
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in _EXCLUDED]
        yield from (here / name for name in files if not name.endswith(".pyc") and (here / name).is_file())


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 10**6:.0f} MB" if size_bytes >= 10**6 else f"{size_bytes / 1000:.0f} kB"


def unpack(content: bytes, digest: str, *, parent: Path | None = None) -> tuple[Path, int]:
    """Return a copy of the code in an archive, and a descriptor that keeps it until it is closed.

    Several processes may call this at once, and use one copy.

    A new copy also removes older copies that no process uses or has opened for a day.

    Raises:
        OSError: if the copy cannot be written, or another user controls the folder of the copies.
    """
    parent = parent or Path(tempfile.gettempdir()) / f"uncork-code-{os.getuid()}"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = parent.lstat()
    # Anybody can create a folder of this name in the temporary folder, and then replace the code in it.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"{parent} must be a folder that only this user can write to; remove it")
    folder = parent / digest
    with (parent / _LOCK).open("w") as lock:
        # Only one process at a time makes, removes or begins to use copies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _remove_unused(parent)
            _extract(content, folder)
        os.utime(folder)
        in_use = os.open(folder, os.O_RDONLY)
        fcntl.flock(in_use, fcntl.LOCK_SH)
        return folder, in_use


def _remove_unused(parent: Path) -> None:
    partial = parent / _PARTIAL
    shutil.rmtree(partial, ignore_errors=True)  # its process has died
    for folder in list(parent.iterdir()):
        if folder.name != _LOCK and folder.stat().st_mtime < time.time() - _KEPT_S and not _is_used(folder):
            folder.rename(partial)
            shutil.rmtree(partial)


def _is_used(folder: Path) -> bool:
    probe = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False


def _extract(content: bytes, folder: Path) -> None:
    partial = folder.with_name(_PARTIAL)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        archive.extractall(partial)
    partial.rename(folder)
