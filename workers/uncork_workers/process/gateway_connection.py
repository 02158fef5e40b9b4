"""The worker's end of its connection."""

import logging
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress

import msgspec

from uncork_workers.process.children import close_in_forks
from uncork_workers.wire.frames import Frame, FrameDecoder, FrameError, encode_frame, split_payload
from uncork_workers.wire.messages import (
    AnswerHead,
    Batch,
    Cancel,
    Goodbye,
    Gpus,
    Leaving,
    Message,
    Piece,
    Ping,
    Pong,
    Ready,
    Reply,
    TakeFile,
)
from uncork_workers.wire.shared_file import SharedFile, receive_with_file

log = logging.getLogger("uncork.worker")

_READ_BYTES = 256 * 1024
# While a batch runs, only a batch ahead and departures can arrive.
_LOOK_BYTES = 64 * 1024
_NOBODY: Set[int] = frozenset()
_TOO_LARGE = b"the results of the batch are too large to send"


class GatewayConnection:
    """A connection to the gateway, over a Unix socket, TCP or TLS.

    Args:
        on_ready: called before the gateway may send the first batch.

    Attributes:
        runs_batches: whether the gateway may have sent a batch.
        goodbye: why the gateway closes the connection, if it has said so.
        gpus: returns the last reading of the GPUs, which the next pong, piece or reply takes along.
    """

    def __init__(self, connection: socket.socket, *, on_ready: Callable[[], object] = lambda: None) -> None:
        self._connection = connection
        self._on_ready = on_ready
        self._decoder = FrameDecoder()
        self._inbox: deque[Frame] = deque()
        self._gateway_closed = False
        self.runs_batches = False
        self.goodbye: Goodbye | None = None
        self.gpus: Callable[[], Gpus | None] = lambda: None
        self._reported: Gpus | None = None
        self._is_receiving = False
        """Whether nothing is being sent, so that a signal handler may."""
        self._using = threading.Lock()
        """Held while a thread looks or sends; threads that a handler has started may look, too."""
        self._is_leaving = False
        self._has_left = False
        self._is_tls = isinstance(connection, ssl.SSLSocket)
        self._is_local = connection.family == socket.AF_UNIX and not self._is_tls
        self._file: SharedFile | None = None
        self._half = self._half_of_reply = 1
        """The halves of the file for the last batch and the last reply; replies have the order of batches."""
        self._sending: threading.Lock | None = None
        """Held while a thread sends, if several do."""
        self._replies_in_order = True
        self._left: dict[int, set[int]] = {}
        """The positions of the requests whose clients have left, by batch that has no reply yet."""
        close_in_forks(self)

    def share(self, *, in_order: bool) -> None:
        """Allow other threads to send, and to ask for cancelled batches, while one iterates over batches.

        Without ``in_order``, replies may have another order than their batches.
        """
        self._sending, self._replies_in_order = threading.Lock(), in_order

    def batches(self) -> Iterator[tuple[Batch, list[bytes]]]:
        """Yield each batch and its bodies until the gateway closes the connection.

        Reply to a batch before you ask for the next one, unless other threads reply.

        Raises:
            FrameError: if the gateway sends an unexpected message.
        """
        has_waited = False
        """Whether the batch in the inbox may have been there while another ran."""
        while True:
            while self._inbox:
                message, payload = self._inbox.popleft()
                if isinstance(message, Batch):
                    if has_waited or self._is_tls:  # TLS reads one record at a time
                        self.look()
                    yield message, self._bodies(message, payload)
                    has_waited = True
                else:
                    self._handle(message)
            if self._gateway_closed:
                return
            with self._using:  # from now on, only this thread takes bytes
                self._is_receiving = True
            if self._is_leaving:
                self._leave()
            data = self._read()
            with self._using:
                self._is_receiving = has_waited = False
                self._receive(data)

    def _handle(self, message: Message) -> None:
        match message:
            case Ping():
                self.send(Pong())
                self._report_gpus()
            case Goodbye():
                self.goodbye = message
            case TakeFile():
                pass
            case _:
                raise FrameError(f"a worker accepts only batches, got {type(message).__name__}")

    def close(self) -> None:
        self._connection.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bytes:
        """Wait for bytes; keep the file attached to them, if any."""
        if self._sending is not None and isinstance(self._connection, ssl.SSLSocket):
            return self._read_in_turn(self._connection, self._sending)
        if not self._is_local or self._file is not None:
            return self._connection.recv(_READ_BYTES)
        data, self._file = receive_with_file(self._connection, _READ_BYTES)
        return data

    def _read_in_turn(self, connection: ssl.SSLSocket, turn: threading.Lock) -> bytes:
        """Wait for bytes of a TLS connection, which only one thread at a time may use: none that waits."""
        readable = select.poll()
        readable.register(connection, select.POLLIN)
        while True:
            if self._is_leaving:
                self._leave()
            if not connection.pending():
                readable.poll()
            with turn:
                connection.setblocking(False)  # what has arrived may be none of our bytes
                try:
                    return connection.recv(_READ_BYTES)
                except ssl.SSLWantReadError:
                    pass
                finally:
                    connection.setblocking(True)

    def _bodies(self, batch: Batch, payload: bytes) -> list[bytes]:
        """Return the bodies of a batch that is about to run."""
        self._half = 1 - self._half
        if not batch.in_file:
            return split_payload(payload, batch.lengths)
        if self._file is None:
            raise FrameError(f"batch {batch.batch} is in the shared file, but none has arrived")
        return self._file.read(batch.lengths, self._half)

    def send_ready(self, ready: Ready) -> None:
        """Tell the gateway that it may send batches."""
        self._on_ready()
        self.runs_batches = True  # first: the gateway may be faster than the next line
        self.send(ready)

    def leave(self) -> None:
        """Ask the gateway for no more batches; it closes the connection. A signal handler may call this."""
        self._is_leaving = True
        if self._is_receiving:
            self._leave()

    def _leave(self) -> None:
        if self._sending is None:
            self._send_leaving()
        elif self._sending.acquire(blocking=False):  # else the thread that has it calls this next
            try:
                self._send_leaving()
            finally:
                self._sending.release()

    def _send_leaving(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._connection.sendall(encode_frame(Leaving()))

    def stop_reading(self) -> None:
        """End the iteration over batches in another thread."""
        with suppress(OSError):  # it is not connected any more
            # Not the method of a TLS connection, which would end what other threads do with it.
            socket.socket.shutdown(self._connection, socket.SHUT_RD)

    def reply(self, reply: Reply, bodies: Sequence[bytes]) -> None:
        """Send the reply to a batch whose payload has been read; 500 for each request if it is too large."""
        self._half_of_reply = 1 - self._half_of_reply
        self._left.pop(reply.batch, None)
        # The halves follow the order of the batches.
        shared = self._file if self._replies_in_order else None
        if shared is not None and shared.write(bodies, self._half_of_reply):
            reply, bodies = msgspec.structs.replace(reply, in_file=True), ()
        try:
            self.send(reply, bodies)
        except FrameError as error:
            log.error("the results of batch %d are too large to send: %s", reply.batch, error)
            self.send(_without_results(reply), [_TOO_LARGE] * len(reply.statuses))
        self._report_gpus()

    def _report_gpus(self) -> None:
        """Send the last reading, once. The thread that reads must not send while another one does."""
        reading = self.gpus()
        if reading is not None and reading is not self._reported:
            self._reported = reading
            with suppress(OSError):  # the next read says why the gateway has closed the connection
                self.send(reading)

    def send(self, message: Message, bodies: Sequence[bytes] = ()) -> None:
        if self._sending is None:
            with self._using:
                self._connection.sendall(encode_frame(message, bodies))
            return
        with self._sending:
            self._connection.sendall(encode_frame(message, bodies))
        if self._is_leaving:
            self._leave()

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        """Send a piece of a stream. A lost connection is not raised here, inside the handler."""
        try:
            self.send(Piece(batch=batch, head=head), [data])
            self._report_gpus()
        except OSError:
            self._gateway_closed = True

    def look(self) -> bool:
        """Read what has arrived, without waiting; return False if the gateway has closed its end."""
        if self._sending is not None:
            return not self._gateway_closed  # the thread that iterates over batches reads
        with self._using:
            if not self._is_receiving:
                self._look()
        return not self._gateway_closed

    def _look(self) -> None:
        # A TLS connection knows no MSG_DONTWAIT.
        self._connection.setblocking(False)
        try:
            while not self._gateway_closed:
                self._receive(self._connection.recv(_LOOK_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError:
            self._gateway_closed = True
        finally:
            self._connection.setblocking(True)

    def left(self, batch: int) -> Set[int]:
        """Return the positions of the requests of a batch whose clients have left, as of the last look."""
        return self._left.get(batch, _NOBODY)

    def fileno(self) -> int:
        """Return the descriptor of the connection; -1 if another thread reads from it."""
        return -1 if self._sending is not None else self._connection.fileno()

    def _receive(self, data: bytes) -> None:
        if not data:
            self._gateway_closed = True
        for frame in self._decoder.feed(data):
            message = frame.message
            if isinstance(message, Batch):
                self._left[message.batch] = set()
            elif isinstance(message, Cancel):
                if (left := self._left.get(message.batch)) is not None:
                    left.update(message.requests)
                continue
            self._inbox.append(frame)


def _without_results(reply: Reply) -> Reply:
    """Return a reply that has failed all requests with ``_TOO_LARGE``."""
    count = len(reply.statuses)
    return Reply(
        batch=reply.batch,
        worked=False,
        seconds=reply.seconds,
        statuses=[500] * count,
        lengths=[len(_TOO_LARGE)] * count,
        chunks=reply.chunks,
        limit=reply.limit,
        memory_failures=reply.memory_failures,
        stages_s=reply.stages_s,
        overlaps=reply.overlaps,
    )
