"""The gateway's end of a worker's socket, for tests of real workers."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import trustme

from tests.loops import HANG_S
from uncork_workers.wire.dialing import VERSION, Address
from uncork_workers.wire.frames import Frame, FrameDecoder, encode_frame
from uncork_workers.wire.handshake import (
    MAX_WELCOME_BYTES,
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Greeting,
    Refusal,
    Welcome,
    encode_greeting,
    is_same,
    read_greeting,
    with_gateway_proof,
    with_worker_proof,
)
from uncork_workers.wire.messages import Message
from uncork_workers.wire.overrides import Override

T = TypeVar("T")
TOKEN = b"0123456789abcdef"
NONCE = bytes(range(NONCE_BYTES))
CHALLENGE = Challenge(NONCE, PROTOCOL, VERSION)


class Connection:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(HANG_S)
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
        listener.settimeout(HANG_S)
        listener.bind(str(path))
        listener.listen()
        yield FakeGateway(listener, pool)


class Admitted(NamedTuple):
    """A worker that has been let in, and what it applied with."""

    worker: Connection
    application: Application


class Newcomer:
    """A connection to the worker port, in the handshake."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(HANG_S)

    def send(self, greeting: Greeting) -> None:
        self.send_bytes(encode_greeting(greeting))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def application(self) -> Application | Refusal:
        return read_greeting(self._receive, Application, most=MAX_WELCOME_BYTES)

    def worker(self) -> Connection:
        return Connection(self._socket)

    def gone(self) -> bool:
        """Wait until the worker closes the connection; return whether it sent nothing more."""
        try:
            return not self._socket.recv(1)
        except ConnectionError:
            return True

    def finish(self) -> None:
        """Close the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the worker has gone"
            data += more
        return data


class FakeTcpGateway:
    """The worker port of a gateway; it talks in a thread while the test runs the worker."""

    def __init__(self, listener: socket.socket, pool: ThreadPoolExecutor, tls: ssl.SSLContext | None) -> None:
        self._listener = listener
        self._pool = pool
        self._tls = tls
        self.address = Address(*listener.getsockname())

    def during(self, talk: Callable[[], T]) -> Future[T]:
        return self._pool.submit(talk)

    def accept(self) -> Newcomer:
        connected, _ = self._listener.accept()
        if self._tls is not None:
            connected = self._tls.wrap_socket(connected, server_side=True)
        return Newcomer(connected)

    def admit(
        self, *, index: int = 0, warmup_seconds: float = 0.0, overrides: Sequence[Override] = ()
    ) -> Admitted:
        """Let the next worker in, which must know the token."""
        newcomer = self.accept()
        newcomer.send(CHALLENGE)
        application = newcomer.application()
        assert isinstance(application, Application)
        assert is_same(application.proof, with_worker_proof(TOKEN, NONCE, application).proof)
        welcome = Welcome(b"", index, list(overrides), warmup_seconds)
        newcomer.send(with_gateway_proof(TOKEN, NONCE, application.nonce, welcome))
        return Admitted(newcomer.worker(), application)


@contextlib.contextmanager
def worker_port(tls: ssl.SSLContext | None = None) -> Iterator[FakeTcpGateway]:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(HANG_S)
        yield FakeTcpGateway(listener, pool, tls)


def server_tls(authority: trustme.CA, host: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    return context
