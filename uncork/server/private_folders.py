"""Folders for sockets that only this user can access."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "uncork-"
_LOCK = "lock"


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder for this process until the block ends; remove those that killed processes left behind."""
    _remove_left_behind()
    # Python makes it accessible to this user alone.
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        making = Path(name) / "making"
        with making.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            making.rename(Path(name) / _LOCK)
            yield Path(name)


def _remove_left_behind() -> None:
    """Remove the folders whose lock is free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # locked, of another user, or not a folder of ours
            if folder.lstat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


def shared_folders() -> list[Path]:
    """Return the folders by which processes of one user find each other, best first.

    Sessions and services have different ones.
    """
    places = [Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        places.insert(0, Path(runtime) / "uncork")
    return places


def is_private(folder: Path) -> bool:
    """Whether a folder belongs to this user and no other user can access it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return folder.is_dir() and status.st_uid == os.getuid() and not status.st_mode & 0o077


def make_private(folder: Path) -> None:
    """Make a private folder, unless it exists.

    Raises:
        OSError: with a message for people, if it cannot be made, or exists and is not private.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_private(folder):
        raise OSError(f"{folder} must be a folder of this user that no other user can access (mode 0700)")
