"""Small files of this user that outlive the process, in a folder that no other user can change.

A folder or file that is a symbolic link, or belongs to another user, is refused: its content is not ours.
"""

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# A new file that has not taken its place for so long was left behind by a process that was killed.
_LEFT_BEHIND_S = 3600.0


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
        _remove_left_behind(place, name)
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


def _remove_left_behind(place: int, name: str) -> None:
    latest = time.time() - _LEFT_BEHIND_S
    for other in os.listdir(place):
        if other.startswith(f"{name}."):
            with suppress(OSError):  # another process has removed it
                if os.stat(other, dir_fd=place, follow_symlinks=False).st_mtime < latest:
                    os.unlink(other, dir_fd=place)
