"""The shared file that carries large batches to a worker on this host, and their results back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from uncork_workers.wire.frames import FrameError, encode_frame
from uncork_workers.wire.messages import TakeFile
from uncork_workers.wire.shared_file import SharedFile, send_with_file


class PayloadFile:
    """The gateway's end of the file shared with one worker. Without a file, all batches use the socket."""

    def __init__(self) -> None:
        self._file: SharedFile | None = None

    def share(self, transport: asyncio.Transport) -> None:
        """Create the file and send it to the worker, before any other message."""
        try:
            self._file = SharedFile.create()
            connection = transport.get_extra_info("socket").fileno()
            send_with_file(connection, encode_frame(TakeFile()), self._file)
        except OSError:  # no memfd, no descriptor left, or the worker is gone
            self.close()

    def write(self, bodies: Sequence[bytes], half: int) -> bool:
        """Write a batch's bodies into half 0 or 1; return False if they must go over the socket."""
        return self._file is not None and self._file.write(bodies, half)

    def read(self, lengths: Sequence[int], half: int) -> list[bytes]:
        """Read a reply's bodies from half 0 or 1; ``lengths`` are their sizes in bytes.

        Raises:
            FrameError: if there is no file, or the file is too short.
        """
        if self._file is None:
            raise FrameError("a reply is in a shared file, but there is none")
        return self._file.read(lengths, half)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
