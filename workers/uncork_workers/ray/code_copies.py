"""Copies of the folders of services on a node, by the hash of their content."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

_KEPT_S = 24 * 3600.0
# Not "lock": gateways remove folders of killed gateways by that name.
_LOCK = "copies.lock"
# A copy that is being made or removed.
_PARTIAL = "partial"


class CodeCopy:
    """A copy that no process removes until :meth:`close`, or until this process ends.

    Attributes:
        folder: of this machine; other workers may use it too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self._lock)


def unpack(content: bytes, digest: str, *, parent: Path | None = None) -> CodeCopy:
    """Return a copy of the code in an archive; several processes may call this at once.

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
    with _locked(parent / _LOCK):
        if not folder.is_dir():
            _remove_unused(parent)
            _extract(content, folder)
        os.utime(folder)
        return CodeCopy(folder)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let only one process make, remove or begin to use copies."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
