"""The shared file through which a worker on this host gets large batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import TakeFile
from uncork_workers.wire.shared_file import IS_SUPPORTED, MOST_BYTES, SharedFile, send_with_file

# A Unix socket buffers little more.
_LEAST_BYTES = 128 * 1024


class PayloadFile:
    """The gateway's end of the shared file of one worker; without a file, the socket takes all batches."""

    def __init__(self) -> None:
        self._file: SharedFile | None = None

    def share(self, transport: asyncio.Transport) -> None:
        """Create the file and send it to the worker, before anything else is sent."""
        if not IS_SUPPORTED:
            return
        try:
            self._file = SharedFile.create()
            connection = transport.get_extra_info("socket").fileno()
            send_with_file(connection, encode_frame(TakeFile()), self._file)
        except OSError:  # out of descriptors, or the worker is gone
            self.close()

    def write(self, bodies: Sequence[bytes], size_bytes: int) -> bool:
        """Write the bodies of a batch, if it is large; return False if the socket must take them."""
        if self._file is None or not _LEAST_BYTES <= size_bytes <= MOST_BYTES:
            return False
        try:
            self._file.write(bodies)
        except OSError:  # out of memory
            return False
        return True

    def close(self) -> None:
        """Close this end of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
