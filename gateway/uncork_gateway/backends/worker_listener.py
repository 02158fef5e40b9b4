"""Accepts workers on TCP: checks that they know the token, then hands them to the pool."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from uncork_gateway.backends.refusal_log import RefusalLog
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_workers.wire.certificates import ServerTls
from uncork_workers.wire.dialing import VERSION, tune
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.handshake import (
    HEAD_BYTES,
    MAX_APPLICATION_BYTES,
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Refusal,
    Welcome,
    decode_greeting,
    encode_greeting,
    greeting_length,
    is_same,
    launch_token,
    printable,
    with_gateway_proof,
    with_worker_proof,
)
from uncork_workers.wire.overrides import Override

log = logging.getLogger("uncork.gateway")

# After a failure to accept, as without free file descriptors.
_RETRY_S = 1.0
# Limits on peers that have not proved that they know the token.
_HANDSHAKE_S = 5.0
_MOST_PENDING = 64
# How long a refused peer that uses TLS has to end it; the loop would wait for it much longer.
_END_OF_TLS_S = 1.0
_TOO_SLOW = f"no handshake within {_HANDSHAKE_S:g} s"
_TOO_SLOW_TLS = f"{_TOO_SLOW}; this port requires TLS, which --ca or --tls of the worker turns on"


@dataclass(slots=True, kw_only=True)
class WorkerPort:
    """The TCP port for workers, and its secrets.

    Attributes:
        listener: a listening socket.
        token: the secret that workers must know that the supervisor has not launched.
        tls: the server's side of TLS; None for plain TCP.
        launch_secret: the secret from which the tokens of launched workers are derived.
    """

    listener: socket.socket
    token: bytes
    tls: ServerTls | None = None
    launch_secret: bytes = field(default_factory=lambda: secrets.token_bytes(NONCE_BYTES))


class WorkerListener:
    """Accepts workers that know the token.

    Args:
        overrides, warmup_seconds: settings to send to the workers; see :meth:`change`.
        on_refusal: called with the reason for each rejected peer.

    Attributes:
        tls: the server's side of TLS; None for plain TCP.
        requires_certificate: True if peers must present a certificate.
        introductions: the handshakes in progress, the oldest first.
    """

    def __init__(
        self,
        pool: WorkerPool,
        port: WorkerPort,
        *,
        overrides: Sequence[Override],
        warmup_seconds: float,
        on_refusal: Callable[[str], object],
    ) -> None:
        self.tls = None if port.tls is None else port.tls.context
        self.requires_certificate = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        if self.tls is not None and self.requires_certificate:
            # TLS would refuse a worker without a certificate, too, but the loop sends no alert that says why.
            self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.introductions: dict[Introduction, None] = {}
        self._on_refusal = on_refusal
        self._log = RefusalLog()
        self._pool = pool
        self._port = port
        self.change(overrides, warmup_seconds)
        self._retry: asyncio.TimerHandle | None = None
        self._warned_of: set[str] = set()

    def change(self, overrides: Sequence[Override], warmup_seconds: float) -> None:
        """Send these settings to the workers that connect from now on."""
        self._overrides, self._warmup_seconds = list(overrides), warmup_seconds

    def listen(self) -> None:
        """Accept workers until :meth:`close`."""
        self._port.listener.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Accept no more workers; accepted workers stay connected."""
        if self._retry is not None:
            self._retry.cancel()
        if self._port.listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._port.listener)
            self._port.listener.close()
        for introduction in list(self.introductions):
            introduction.close()
        self._log.close()

    def _watch(self) -> None:
        asyncio.get_running_loop().add_reader(self._port.listener, self._accept)

    def _accept(self) -> None:
        """Accept a connection. The event loop's own server would not report TLS failures."""
        try:
            connection, (host, port, *_) = self._port.listener.accept()
        except (BlockingIOError, ConnectionError):  # the peer has gone
            return
        except OSError as error:
            log.error("cannot accept workers at present: %s", error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._port.listener)
            self._retry = loop.call_later(_RETRY_S, self._watch)
            return
        Introduction(self, f"{host} port {port}").begin(connection)

    def answer(self, header: bytes, nonce: bytes) -> Application | Refusal:
        """Return a peer's response to the challenge ``nonce``, or a refusal if it does not prove its token.

        Raises:
            FrameError: if the response is invalid.
        """
        answer = decode_greeting(header, Application)
        if isinstance(answer, Refusal):
            return Refusal(answer.reason, f"the worker refuses this gateway: {answer.message}")
        if answer.protocol != PROTOCOL:
            return Refusal(
                "protocol",
                f"the gateway (uncork {VERSION}) speaks worker protocol {PROTOCOL}, the worker (uncork "
                f"{answer.version}) speaks {answer.protocol}; install the same version on both sides",
            )
        expected = with_worker_proof(self._token(answer.launch), nonce, answer)
        if not is_same(answer.proof, expected.proof):
            if answer.launch is None:
                return Refusal("token", "the worker's token differs from the gateway's")
            return Refusal("token", f"the worker is not launch {answer.launch} of this gateway")
        return answer

    def admit(self, transport: asyncio.Transport, application: Application, nonce: bytes) -> None:
        """Hand the connection of a worker to the pool."""
        version = application.version
        if version != VERSION and version not in self._warned_of:
            self._warned_of.add(version)
            log.warning(
                "a worker has uncork %s, the gateway has %s; install the same version on both sides",
                *(printable(version), VERSION),
            )
        index = self._pool.admit(transport, application)
        welcome = Welcome(b"", index, self._overrides, self._warmup_seconds)
        token = self._token(application.launch)
        transport.write(encode_greeting(with_gateway_proof(token, nonce, application.nonce, welcome)))

    def refused(self, peer: str, refusal: Refusal) -> None:
        self._on_refusal(refusal.reason)
        self._log.refused(refusal.reason, peer, refusal.message)

    def _token(self, launch: int | None) -> bytes:
        return self._port.token if launch is None else launch_token(self._port.launch_secret, launch)


class Introduction(asyncio.Protocol):
    """The handshake with one peer, within :data:`_HANDSHAKE_S` and a few kilobytes.

    If :data:`_MOST_PENDING` others are pending, the oldest is ended. Workers need only milliseconds, so
    silent peers cannot lock them out.
    """

    def __init__(self, listener: WorkerListener, peer: str) -> None:
        self._listener = listener
        self._peer = peer
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._has_ended = False

    def begin(self, connection: socket.socket) -> None:
        """Start the handshake on an accepted connection."""
        connection.setblocking(False)
        pending = self._listener.introductions
        if len(pending) >= _MOST_PENDING:
            next(iter(pending)).make_room()
        pending[self] = None
        self._connecting = asyncio.create_task(self._connect(connection))
        self._connecting.add_done_callback(lambda _: self._release(connection))
        too_slow = Refusal("timeout", _TOO_SLOW if self._listener.tls is None else _TOO_SLOW_TLS)
        self._timeout = asyncio.get_running_loop().call_later(_HANDSHAKE_S, self._refuse, too_slow)

    def make_room(self) -> None:
        """End the handshake, to make room for a newer one."""
        self._refuse(Refusal("too_many", f"{_MOST_PENDING} newer handshakes are pending"))
        if self._transport is not None and self._listener.tls is not None:
            self._transport.abort()  # the peers that end their TLS in time may be too many

    def close(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._listener.requires_certificate and not _certificate(transport):
            self._refuse(Refusal("tls", "this gateway requires a certificate of the worker; give --tls-cert"))
        else:
            self._transport.write(encode_greeting(Challenge(self._nonce, PROTOCOL, VERSION)))

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            return
        self._received += data
        try:
            self._read()
        except FrameError as error:
            self._refuse(Refusal("invalid", str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    # The steps

    async def _connect(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            tune(connection)
            await loop.connect_accepted_socket(lambda: self, connection, ssl=self._listener.tls)
        except OSError as error:
            reason = str(error) or "the peer closed the connection"
            self._refuse(Refusal("tls", f"TLS failed: {reason}"))

    def _release(self, connection: socket.socket) -> None:
        if self._transport is None:
            connection.close()

    def _read(self) -> None:
        if len(self._received) < HEAD_BYTES:
            return
        end = HEAD_BYTES + greeting_length(self._received[:HEAD_BYTES], most=MAX_APPLICATION_BYTES)
        if len(self._received) < end:
            return
        application = self._listener.answer(self._received[HEAD_BYTES:end], self._nonce)
        if isinstance(application, Refusal):
            self._refuse(application)
            return
        if len(self._received) > end:
            raise FrameError("the worker sent more before it was welcome")
        assert self._transport is not None
        self._end()
        self._listener.admit(self._transport, application, self._nonce)

    def _refuse(self, refusal: Refusal) -> None:
        if self._has_ended:
            return
        self._listener.refused(self._peer, refusal)
        if self._transport is not None:
            self._transport.write(encode_greeting(refusal))
            if self._listener.tls is not None:
                asyncio.get_running_loop().call_later(_END_OF_TLS_S, self._transport.abort)
        self.close()

    def _end(self) -> None:
        self._has_ended = True
        self._listener.introductions.pop(self, None)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._connecting is not None and self._transport is None:
            self._connecting.cancel()


def _certificate(transport: asyncio.BaseTransport) -> bool:
    """Return True if the peer has presented a certificate, which TLS has then verified."""
    connection = transport.get_extra_info("ssl_object")
    return bool(connection.getpeercert(binary_form=True))
