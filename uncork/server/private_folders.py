"""Folders for sockets, which belong to this user alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "uncork-"
_HELD = "held"


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for this process, until the block ends; those that killed processes have left are removed."""
    _remove_left_behind()
    # Made accessible to this user alone.
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        making = Path(name) / "making"
        with making.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            making.rename(Path(name) / _HELD)
            yield Path(name)


def _remove_left_behind() -> None:
    """Remove the folders whose lock nobody holds any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody holds it, or it is another user's, or no such folder
            if folder.lstat().st_uid != os.getuid():
                continue
            with (folder / _HELD).open("r+") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


def shared_folders() -> list[Path]:
    """Where processes of one user find each other, best first; sessions and services have different ones."""
    places = [Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        places.insert(0, Path(runtime) / "uncork")
    return places


def is_private(folder: Path) -> bool:
    """Whether it is a folder of this user, and nobody else can do anything in it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return folder.is_dir() and status.st_uid == os.getuid() and not status.st_mode & 0o077


def make_private(folder: Path) -> None:
    """Make a folder, if there is none yet.

    Raises:
        OSError: if that is not possible, or there is one that is not private; with a message for people.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_private(folder):
        raise OSError(f"{folder} is not a folder that belongs to this user alone")
