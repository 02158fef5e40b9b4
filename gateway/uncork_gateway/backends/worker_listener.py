"""Accept workers on TCP: check that they know the token, then hand them to the pool."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.version import VERSION
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.handshake import (
    HEAD_BYTES,
    MAX_APPLICATION_BYTES,
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Refusal,
    RefusalReason,
    Welcome,
    decode_greeting,
    encode_greeting,
    gateway_proof,
    greeting_length,
    is_same,
    printable,
    worker_proof,
)
from uncork_workers.wire.overrides import Override
from uncork_workers.wire.tcp import tune

log = logging.getLogger("uncork.gateway")

# Limits on peers that have not proved that they know the token.
_HANDSHAKE_S = 5.0
_MOST_UNPROVED = 64
# After a failure to accept, as without free file descriptors.
_RETRY_S = 1.0
_TOO_SLOW = f"no handshake within {_HANDSHAKE_S:g} s"
_TOO_SLOW_TLS = f"{_TOO_SLOW}; this port requires TLS, which --ca or --tls of the worker turns on"


class Refused(Exception):
    """A peer is not accepted; the message says why, for people."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def greeting(self) -> bytes:
        """Return the message to the peer."""
        return encode_greeting(Refusal(reason=self.reason, message=str(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPort:
    """Where workers connect over TCP.

    Attributes:
        listener: listens already.
        token: the secret that gateway and workers share.
        tls: the server's side of TLS; None for plain TCP.
    """

    listener: socket.socket
    token: bytes
    tls: ssl.SSLContext | None = None


class WorkerListener:
    """Accepts workers that know the token.

    Args:
        pool: gets the connections.
        port: where to listen, and what workers must know.
        overrides, warmup_seconds: sent to the workers.
        on_refusal: called with the reason for each peer that is not accepted.
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
        self.tls = port.tls
        self.on_refusal = on_refusal
        self.introductions: set[Introduction] = set()
        """The peers that have not proved anything yet."""
        self._pool = pool
        self._port = port
        self._overrides = list(overrides)
        self._warmup_seconds = warmup_seconds
        self._retry: asyncio.TimerHandle | None = None
        self._warned_of: set[str] = set()

    def listen(self) -> None:
        """Accept workers until :meth:`close`."""
        self._port.listener.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Accept no more workers; those that the pool has stay."""
        if self._retry is not None:
            self._retry.cancel()
        if self._port.listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._port.listener)
            self._port.listener.close()
        for introduction in list(self.introductions):
            introduction.close()

    def _watch(self) -> None:
        asyncio.get_running_loop().add_reader(self._port.listener, self._accept)

    def _accept(self) -> None:
        """Accept a connection. A server of the loop would not report the failures of TLS."""
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

    def answer(self, header: bytes, nonce: bytes) -> Application:
        """Return what a peer answered to a challenge with this nonce, if it proves that it knows the token.

        Raises:
            Refused: if it does not, or cannot be understood.
        """
        try:
            answer = decode_greeting(header, Application)
        except FrameError as error:
            raise Refused("invalid", str(error)) from None
        if isinstance(answer, Refusal):
            raise Refused(answer.reason, f"the worker refuses this gateway: {answer.message}")
        if answer.protocol != PROTOCOL:
            raise Refused(
                "protocol",
                f"the gateway (uncork {VERSION}) speaks worker protocol {PROTOCOL}, the worker (uncork "
                f"{answer.version}) speaks {answer.protocol}; install the same version on both sides",
            )
        if not is_same(answer.proof, worker_proof(self._port.token, nonce, answer.nonce)):
            raise Refused("token", "the worker's token differs from the gateway's")
        return answer

    def admit(self, transport: asyncio.Transport, application: Application, nonce: bytes) -> None:
        """Hand the connection of a worker to the pool."""
        version = application.version
        if version != VERSION and version not in self._warned_of:
            self._warned_of.add(version)
            log.warning(
                "a worker has uncork %s, the gateway has %s; install the same version on both sides",
                *(version, VERSION),
            )
        proof = gateway_proof(self._port.token, nonce, application.nonce)
        index = self._pool.admit(transport, application)
        welcome = Welcome(proof, index, self._overrides, self._warmup_seconds)
        transport.write(encode_greeting(welcome))


class Introduction(asyncio.Protocol):
    """The handshake with one peer, within :data:`_HANDSHAKE_S` and a few kilobytes."""

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
        """Start the handshake on an accepted connection, unless too many are pending."""
        connection.setblocking(False)
        if len(self._listener.introductions) >= _MOST_UNPROVED:
            refused = Refused("too_many", f"{_MOST_UNPROVED} other handshakes are pending")
            with connection, suppress(OSError):
                if self._listener.tls is None:
                    connection.send(refused.greeting())
            self._refuse(refused)
            return
        self._listener.introductions.add(self)
        self._connecting = asyncio.create_task(self._connect(connection))
        self._connecting.add_done_callback(lambda _: self._release(connection))
        too_slow = Refused("timeout", _TOO_SLOW if self._listener.tls is None else _TOO_SLOW_TLS)
        self._timeout = asyncio.get_running_loop().call_later(_HANDSHAKE_S, self._refuse, too_slow)

    def close(self) -> None:
        """End the handshake."""
        self._end()
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(encode_greeting(Challenge(self._nonce, PROTOCOL, VERSION)))

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            self._read()
        except FrameError as error:
            self._refuse(Refused("invalid", str(error)))
        except Refused as refused:
            self._refuse(refused)

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
            self._refuse(Refused("tls", f"TLS failed: {reason}"))

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
        if len(self._received) > end:
            raise FrameError("the worker sent more before it was welcome")
        assert self._transport is not None
        self._end()
        self._listener.admit(self._transport, application, self._nonce)

    def _refuse(self, refused: Refused) -> None:
        if self._has_ended:
            return
        self._listener.on_refusal(refused.reason)
        log.warning("refused a worker from %s: %s", self._peer, printable(str(refused)))
        if self._transport is not None:
            self._transport.write(refused.greeting())
        self.close()

    def _end(self) -> None:
        self._has_ended = True
        self._listener.introductions.discard(self)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._connecting is not None and self._transport is None:
            self._connecting.cancel()
