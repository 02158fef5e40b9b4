"""Folders for sockets, and files, that only this user can access."""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "uncork-"
_LOCK = "lock"
# The system limits the path of a Unix socket.
_MOST_PATH_BYTES = 107 if sys.platform == "linux" else 103
_LONGEST_SOCKET = "/uncork-01234567/99/workers.sock"
_SHORT = ("/tmp", "/var/tmp")
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# A new file that has not taken its place for so long was left behind by a process that was killed.
_LEFT_BEHIND_S = 3600.0


@contextmanager
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
        with suppress(OSError):  # locked, of another user, or not a folder of ours
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
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_private(folder):
        raise OSError(f"{folder} must be a folder of this user that no other user can access (mode 0700)")


def read_private(folder: Path, name: str, *, most_bytes: int) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: if there is none.
        OSError: with a message for people, if it cannot be read, is not private, or is larger.
    """
    with _opened(folder) as place:
        # A pipe must not block.
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=place)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{folder / name} is not a file")
            _check_owner(status, folder / name)
            with os.fdopen(file, "rb", closefd=False) as opened:
                content = opened.read(most_bytes + 1)
        finally:
            os.close(file)
    if len(content) > most_bytes:
        raise OSError(f"{folder / name} has more than {most_bytes} bytes")
    return content


def write_private(folder: Path, name: str, content: bytes) -> None:
    """Replace a file at once, or make it, with its folder if that is missing.

    Raises:
        OSError: with a message for people, if that is impossible; the file is then as it was.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(folder) as place:
        _remove_unplaced(place, name)
        # Two processes may write at the same time.
        new = f"{name}.{secrets.token_hex(4)}"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=place)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(file)
            os.replace(new, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=place)
            raise


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Give the descriptor of a folder until the block ends."""
    # The folder itself must not be a link; those above it may be.
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    try:
        _check_owner(os.fstat(place), folder)
        yield place
    finally:
        os.close(place)


def _check_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise OSError(f"{path} belongs to another user")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise OSError(f"other users can write to {path}")


def _remove_unplaced(place: int, name: str) -> None:
    latest = time.time() - _LEFT_BEHIND_S
    for other in os.listdir(place):
        if other.startswith(f"{name}."):
            with suppress(OSError):  # another process has removed it
                if os.stat(other, dir_fd=place, follow_symlinks=False).st_mtime < latest:
                    os.unlink(other, dir_fd=place)
