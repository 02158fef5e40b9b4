"""The worker's end of its socket."""

import socket
from collections import deque
from collections.abc import Iterator, Sequence

from uncork_workers.wire.frames import Frame, FrameDecoder, FrameError, encode_frame
from uncork_workers.wire.messages import AnswerHead, Batch, Cancel, Message, Piece, Ping, Pong

_READ_BYTES = 256 * 1024
# Between the pieces of a stream only a cancel of a few bytes can arrive.
_PEEK_BYTES = 4096


class GatewayConnection:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = FrameDecoder()
        self._inbox: deque[Frame] = deque()
        self._gateway_closed = False

    def batches(self) -> Iterator[tuple[Batch, bytes]]:
        """Yield each batch and its payload until the gateway closes the connection.

        Raises:
            FrameError: if the gateway sends an unexpected message.
        """
        while True:
            while self._inbox:
                message, payload = self._inbox.popleft()
                if isinstance(message, Batch):
                    yield message, payload
                elif isinstance(message, Ping):
                    self.send(Pong())
                elif not isinstance(message, Cancel):  # of a batch that has ended
                    raise FrameError(f"a worker accepts only batches, got {type(message).__name__}")
            if self._gateway_closed:
                return
            self._receive(self._connection.recv(_READ_BYTES))

    def send(self, message: Message, bodies: Sequence[bytes] = ()) -> None:
        self._connection.sendall(encode_frame(message, bodies))

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        """Send a piece of a stream. A lost connection is not raised here, inside the handler."""
        try:
            self.send(Piece(batch=batch, head=head), [data])
        except (BrokenPipeError, ConnectionResetError):
            self._gateway_closed = True

    def is_cancelled(self, batch: int) -> bool:
        """Return whether the gateway has cancelled the batch or gone away."""
        try:
            self._receive(self._connection.recv(_PEEK_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self._gateway_closed = True
        return self._gateway_closed or Cancel(batch) in (frame.message for frame in self._inbox)

    def _receive(self, data: bytes) -> None:
        if not data:
            self._gateway_closed = True
        self._inbox.extend(self._decoder.feed(data))
