"""Folders for sockets that only this user can access."""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "uncork-"
_LOCK = "lock"
# The system limits the path of a Unix socket.
_MOST_PATH_BYTES = 107 if sys.platform == "linux" else 103
_LONGEST_SOCKET = "/uncork-01234567/99/workers.sock"
_SHORT = ("/tmp", "/var/tmp")


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder for this process until the block ends; remove those that killed processes left behind.

    Raises:
        OSError: with a message for people, if there is no place for it.
    """
    place = _place_for_sockets()
    _remove_left_behind(place)
    # Python makes it accessible to this user alone.
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True) as name:
        making = Path(name) / "making"
        with making.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            making.rename(Path(name) / _LOCK)
            yield Path(name)


def _place_for_sockets() -> Path:
    """Return the folder for temporary files, or another one if its path is too long for sockets."""
    usual = Path(tempfile.gettempdir())
    places = [usual, *map(Path, filter(None, [os.environ.get("XDG_RUNTIME_DIR"), *_SHORT]))]
    for place in places:
        if _is_short(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    most = _MOST_PATH_BYTES - len(_LONGEST_SOCKET)
    raise OSError(
        errno.ENAMETOOLONG,
        f"the path of the folder for temporary files, {usual}, has {len(os.fsencode(usual))} bytes; Unix "
        f"sockets allow at most {most} here. Set TMPDIR to a folder with a shorter path",
    )


def _is_short(place: Path) -> bool:
    return len(os.fsencode(place)) + len(_LONGEST_SOCKET) <= _MOST_PATH_BYTES


def _remove_left_behind(place: Path) -> None:
    """Remove the folders whose lock is free."""
    for folder in place.glob(f"{_PREFIX}*"):
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
    places = [_place_for_sockets() / f"{_PREFIX}{os.getuid()}"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_short(Path(runtime)):
        places.insert(0, Path(runtime) / "uncork")
    return places


def is_private(folder: Path) -> bool:
    """Return True if a folder belongs to this user and no other user can access it."""
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
