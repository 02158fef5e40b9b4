"""The gateway's end of a worker's socket, for tests of real workers."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from uncork_workers.wire.frames import Frame, FrameDecoder, encode_frame
from uncork_workers.wire.messages import Message

# Far above any duration; ends a test that hangs.
_PATIENCE_S = 60


class Connection:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(_PATIENCE_S)
        self._frames = self._receive()

    def next(self) -> Frame:
        return next(self._frames)

    def rest(self) -> list[Frame]:
        """Return what the worker sends until it closes the connection."""
        return list(self._frames)

    def send(self, *frames: tuple[Message, Sequence[bytes]]) -> None:
        self._socket.sendall(b"".join(encode_frame(message, bodies) for message, bodies in frames))

    def finish(self) -> None:
        """Close the sending side; the worker's messages can still be read."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> Iterator[Frame]:
        decoder = FrameDecoder()
        while data := self._socket.recv(65536):
            yield from decoder.feed(data)


class FakeGateway:
    """Listens for one worker and talks to it in a thread while the test runs the worker."""

    def __init__(self, listener: socket.socket, pool: ThreadPoolExecutor) -> None:
        self._listener = listener
        self._pool = pool

    def accept(self) -> Connection:
        connected, _ = self._listener.accept()
        return Connection(connected)

    def say(self, *frames: tuple[Message, Sequence[bytes]]) -> Future[list[Frame]]:
        """Send frames to the worker that connects, then finish; return all that it sends."""

        def talk() -> list[Frame]:
            worker = self.accept()
            try:
                with contextlib.suppress(OSError):  # the worker may have exited
                    worker.send(*frames)
                    worker.finish()
                return worker.rest()
            finally:
                worker.close()

        return self._pool.submit(talk)

    def hang_up(self) -> Future[None]:
        return self._pool.submit(lambda: self.accept().close())


@contextlib.contextmanager
def listening(path: Path) -> Iterator[FakeGateway]:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(_PATIENCE_S)
        listener.bind(str(path))
        listener.listen()
        yield FakeGateway(listener, pool)
