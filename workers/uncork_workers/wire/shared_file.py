"""A shared file: an in-memory file (memfd) that carries large payloads between two processes of one host.

A Unix socket buffers about 200 kB. For a larger payload, sender and receiver wake each other for every part.
The sender writes all of it to the file before it notifies the receiver.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence
from itertools import accumulate

from uncork_workers.wire.frames import FrameError, split_payload

# A Unix socket buffers little more.
_LEAST_BYTES = 128 * 1024
MOST_BYTES = 32 * 2**20
"""The largest payload in half of a shared file. The file keeps its memory, and writing blocks the sender."""
# From this average on, bodies are read one by one: a system call takes less time than copying them once more.
_LARGE_BODY_BYTES = 16 * 1024
# The most buffers in one system call.
_MOST_BUFFERS = 1024
# Not defined on macOS, where no descriptors arrive.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class SharedFile:
    """Holds two payloads, one in each half, for the two batches that a worker can have.

    Batches use the halves in turn, first for the requests and then for the reply. Nothing is overwritten
    before it has been read: the gateway sends a batch only after it has read the reply to the last batch in
    the same half, and the worker writes a reply only after it has read the requests.

    Args:
        descriptor: the file's descriptor; :meth:`close` closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "SharedFile":
        """Create an empty file.

        Raises:
            OSError: if the process has too many open files, or there is no memfd.
        """
        # On Linux, Python lacks it if it was built for an old C library.
        if not hasattr(os, "memfd_create"):
            raise OSError(errno.ENOSYS, "this Python has no memfd_create")
        return cls(os.memfd_create("uncork-payload"))  # type: ignore[attr-defined,unused-ignore]

    def write(self, bodies: Sequence[bytes], half: int) -> bool:
        """Write a payload, given in parts, into half 0 or 1; return False if the socket must take it.

        That is so if it is small or too large, or if there is not enough memory.
        """
        if not _LEAST_BYTES <= sum(map(len, bodies)) <= MOST_BYTES:
            return False
        try:
            self._write_all(bodies, half * MOST_BYTES)
        except OSError:
            return False
        return True

    def _write_all(self, bodies: Sequence[bytes], at: int) -> None:
        for first in range(0, len(bodies), _MOST_BUFFERS):
            parts = bodies[first : first + _MOST_BUFFERS]
            size = sum(map(len, parts))
            if os.pwritev(self.descriptor, parts, at) < size:
                raise OSError(errno.ENOSPC, "the shared file is full")
            at += size

    def read(self, lengths: Sequence[int], half: int) -> list[bytes]:
        """Read the bodies of the payload in half 0 or 1, given the bytes in each.

        Raises:
            FrameError: if the file is shorter, or cannot hold as much.
        """
        size = sum(lengths)
        if size > MOST_BYTES or min(lengths, default=0) < 0:
            raise FrameError(f"a shared file has at most {MOST_BYTES} bytes, not lengths {list(lengths)[:8]}")
        if size < _LARGE_BODY_BYTES * len(lengths):
            return split_payload(self._read(size, half * MOST_BYTES), lengths)
        # This saves a copy of each body.
        ends = accumulate(lengths, initial=half * MOST_BYTES)
        return [self._read(length, at) for length, at in zip(lengths, ends, strict=False)]

    def _read(self, count: int, at: int) -> bytes:
        data = os.pread(self.descriptor, count, at)
        if len(data) < count:
            raise FrameError(f"the shared file has {at + len(data)} bytes instead of {at + count}")
        return data

    def close(self) -> None:
        """Close this end. The memory is freed when both ends are closed."""
        os.close(self.descriptor)


def send_with_file(connection: int, data: bytes, file: SharedFile) -> None:
    """Send ``data`` with a file attached, over the Unix socket with the descriptor ``connection``.

    No bytes may be waiting to be sent over it, and ``data`` must be short enough to be sent at once.

    Raises:
        OSError: if the receiver is gone.
    """
    with socket.fromfd(connection, socket.AF_UNIX, socket.SOCK_STREAM) as copy:
        socket.send_fds(copy, [data], [file.descriptor])


def receive_with_file(connection: socket.socket, count: int) -> tuple[bytes, SharedFile | None]:
    """Receive at most ``count`` bytes from a Unix socket, and the file attached to them, if any.

    Raises:
        OSError: if the sender is gone.
    """
    data, attached, _, _ = connection.recvmsg(count, socket.CMSG_LEN(4), _CLOSE_ON_EXEC)
    for level, kind, content in attached:
        if (level, kind, len(content)) == (socket.SOL_SOCKET, socket.SCM_RIGHTS, 4):
            return data, SharedFile(int.from_bytes(content, sys.byteorder))
    return data, None
