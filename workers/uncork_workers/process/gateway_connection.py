"""A worker's end of its socket: batches and their cancelling come in, pieces of answers go out."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator, Sequence

from uncork_workers.wire.frames import Frame, FrameDecoder, FrameError, encode_frame
from uncork_workers.wire.messages import AnswerHead, Batch, Cancel, Message, Piece, Ping, Pong

_READ_BYTES = 256 * 1024
# Between pieces of a stream nothing comes but the few bytes of a cancel.
_PEEK_BYTES = 4096


class GatewayConnection:
    """What a worker hears and says."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = FrameDecoder()
        self._came: deque[Frame] = deque()
        self._is_deserted = False

    def batches(self) -> Iterator[tuple[Batch, bytes]]:
        """Each batch and its payload, until the gateway closes the connection.

        Raises:
            FrameError: if it sends something else.
        """
        while True:
            while self._came:
                message, payload = self._came.popleft()
                if isinstance(message, Batch):
                    yield message, payload
                elif isinstance(message, Ping):
                    self.send(Pong())
                elif not isinstance(message, Cancel):  # which is late: its batch has ended
                    raise FrameError(f"a worker takes batches, not {type(message).__name__}")
            if self._is_deserted:
                return
            self._receive(self._connection.recv(_READ_BYTES))

    def send(self, message: Message, bodies: Sequence[bytes] = ()) -> None:
        """Send a frame."""
        self._connection.sendall(encode_frame(message, bodies))

    # Streamed answers

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        """Send a piece. That the gateway has gone is not the handler's fault, and not raised there."""
        try:
            self.send(Piece(batch=batch, head=head), [data])
        except (BrokenPipeError, ConnectionResetError):
            self._is_deserted = True

    def is_cancelled(self, batch: int) -> bool:
        """Whether nobody waits for more of a batch."""
        try:
            self._receive(self._connection.recv(_PEEK_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self._is_deserted = True
        return self._is_deserted or Cancel(batch) in (frame.message for frame in self._came)

    def _receive(self, data: bytes) -> None:
        if not data:
            self._is_deserted = True
        self._came.extend(self._decoder.feed(data))
