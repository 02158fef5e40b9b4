"""Accept workers on TCP: check that they know the token, then hand them to the pool."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
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
    worker_proof,
)
from uncork_workers.wire.overrides import Override
from uncork_workers.wire.tcp import tune

log = logging.getLogger("uncork.gateway")

# Limits on peers that have not proved that they know the token.
_HANDSHAKE_S = 5.0
_MOST_UNPROVED = 64
# How long to wait if the process has no file descriptor left.
_ACCEPT_AGAIN_S = 1.0

_TOO_SLOW = f"no handshake within {_HANDSHAKE_S:g} s"
_TOO_SLOW_TLS = f"{_TOO_SLOW}; this port requires TLS, which --ca or --tls of the worker turns on"


class Refused(Exception):
    """A peer is not accepted; the message says why, for people."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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
        self._accepting: asyncio.Task[None] | None = None
        self._warned_of: set[str] = set()

    async def listen(self) -> None:
        """Accept workers until :meth:`close`."""
        self._port.listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more workers; those that the pool has stay."""
        if self._accepting is not None:
            self._accepting.cancel()
        self._port.listener.close()
        for introduction in list(self.introductions):
            introduction.close()

    async def _accept(self) -> None:
        # Not create_server: its connections cannot be upgraded to TLS before uvloop reads the first bytes.
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (host, port, *_) = await loop.sock_accept(self._port.listener)
            except OSError as error:
                log.error("cannot accept workers at present: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
            else:
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

    def begin(self, connection: socket.socket) -> None:
        """Shake hands over a connection, with TLS first if the port has it."""
        if len(self._listener.introductions) >= _MOST_UNPROVED:
            refused = Refused("too_many", f"{_MOST_UNPROVED} other handshakes are pending")
            self._note(refused)
            if self._listener.tls is None:
                with contextlib.suppress(OSError):
                    connection.send(_refusal(refused))
            connection.close()
            return
        self._listener.introductions.add(self)
        too_slow = Refused("timeout", _TOO_SLOW if self._listener.tls is None else _TOO_SLOW_TLS)
        self._timeout = asyncio.get_running_loop().call_later(_HANDSHAKE_S, self._refuse, too_slow)
        self._connecting = asyncio.create_task(self._connect(connection))

    def close(self) -> None:
        """End the handshake."""
        self._end()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()

    async def _connect(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            tune(connection)
            await loop.connect_accepted_socket(lambda: self, connection, ssl=self._listener.tls)
        except OSError as error:
            self._refuse(Refused("tls", f"TLS failed: {error}"))

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
        self._note(refused)
        if self._transport is not None:
            self._transport.write(_refusal(refused))
        self.close()

    def _note(self, refused: Refused) -> None:
        self._listener.on_refusal(refused.reason)
        log.warning("refused a worker from %s: %s", self._peer, refused)

    def _end(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._listener.introductions.discard(self)


def _refusal(refused: Refused) -> bytes:
    return encode_greeting(Refusal(reason=refused.reason, message=str(refused)))
