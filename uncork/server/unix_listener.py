"""A Unix socket for clients of the same machine, such as a proxy in front of the server."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The owner and the group: a proxy of another user joins the group of the server.
_MODE = 0o660


@contextmanager
def unix_listener(path: Path) -> Iterator[socket.socket]:
    """Listen on a path, and remove the socket when the block ends.

    Raises:
        OSError: with a message for people, if another server listens there, the path is taken by a file of
            another kind, or no socket can be made there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_left_behind(path)
        listener.bind(os.fspath(path))
        made = _identity(path)
        path.chmod(_MODE)  # until it listens, nobody can connect
        listener.listen()
    except OSError as error:
        listener.close()
        # A path that is too long has no number.
        reason = error.strerror or str(error)
        raise OSError(
            error.errno or errno.ENAMETOOLONG, f"cannot listen on {path}: {reason}; choose another --uds"
        ) from error
    try:
        yield listener
    finally:
        listener.close()
        # Somebody may have removed it, and another server may have made one there.
        with suppress(OSError):
            if _identity(path) == made:
                path.unlink()


def _remove_left_behind(path: Path) -> None:
    """Remove the socket of a server that was killed."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EEXIST, "the file is not a socket, so it was left in place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, "another server listens there")


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
