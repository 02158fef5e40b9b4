"""The gateway's side of the handshake with one peer of the worker port."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from typing import Protocol, cast

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
    encode_greeting,
    greeting_length,
)
from uncork_workers.wire.tcp import tune

# Limits on peers that have not proved that they know the token.
_HANDSHAKE_S = 5.0
MOST_PENDING = 64
# How long a refused peer that uses TLS has to end it; the loop would wait for it much longer.
_END_OF_TLS_S = 1.0
_TOO_SLOW = f"no handshake within {_HANDSHAKE_S:g} s"
_TOO_SLOW_TLS = f"{_TOO_SLOW}; this port requires TLS, which --ca or --tls of the worker turns on"


class Refused(Exception):
    """A peer is rejected; the message says why."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def greeting(self) -> bytes:
        """Return the message to send to the peer."""
        return encode_greeting(Refusal(reason=self.reason, message=str(self)))


class Admission(Protocol):
    """Accepts or rejects the peers of a worker port.

    Attributes:
        tls: the server's side of TLS; None for plain TCP.
        requires_certificate: True if peers must present a certificate.
        introductions: the handshakes in progress, the oldest first.
    """

    tls: ssl.SSLContext | None
    requires_certificate: bool
    introductions: dict[Introduction, None]

    def answer(self, header: bytes, nonce: bytes) -> Application:
        """Return a peer's response to the challenge ``nonce``, if it is accepted.

        Raises:
            Refused: if the peer is rejected.
        """
        ...

    def admit(self, transport: asyncio.Transport, application: Application, nonce: bytes) -> None:
        """Take over the connection of an accepted worker."""

    def refused(self, peer: str, refused: Refused) -> None:
        """Note that a peer was rejected."""


class Introduction(asyncio.Protocol):
    """The handshake with one peer, within :data:`_HANDSHAKE_S` and a few kilobytes.

    If :data:`MOST_PENDING` others are pending, the oldest is ended. Workers need only milliseconds, so silent
    peers cannot lock them out.
    """

    def __init__(self, admission: Admission, peer: str) -> None:
        self._admission = admission
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
        pending = self._admission.introductions
        if len(pending) >= MOST_PENDING:
            next(iter(pending)).make_room()
        pending[self] = None
        self._connecting = asyncio.create_task(self._connect(connection))
        self._connecting.add_done_callback(lambda _: self._release(connection))
        too_slow = Refused("timeout", _TOO_SLOW if self._admission.tls is None else _TOO_SLOW_TLS)
        self._timeout = asyncio.get_running_loop().call_later(_HANDSHAKE_S, self._refuse, too_slow)

    def make_room(self) -> None:
        """End the handshake, to make room for a newer one."""
        self._refuse(Refused("too_many", f"{MOST_PENDING} newer handshakes are pending"))
        if self._transport is not None and self._admission.tls is not None:
            self._transport.abort()  # the peers that end their TLS in time may be too many

    def close(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._admission.requires_certificate and not _certificate(transport):
            self._refuse(Refused("tls", "this gateway requires a certificate of the worker; give --tls-cert"))
        else:
            self._transport.write(encode_greeting(Challenge(self._nonce, PROTOCOL, VERSION)))

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            return
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
            await loop.connect_accepted_socket(lambda: self, connection, ssl=self._admission.tls)
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
        application = self._admission.answer(self._received[HEAD_BYTES:end], self._nonce)
        if len(self._received) > end:
            raise FrameError("the worker sent more before it was welcome")
        assert self._transport is not None
        self._end()
        self._admission.admit(self._transport, application, self._nonce)

    def _refuse(self, refused: Refused) -> None:
        if self._has_ended:
            return
        self._admission.refused(self._peer, refused)
        if self._transport is not None:
            self._transport.write(refused.greeting())
            if self._admission.tls is not None:
                asyncio.get_running_loop().call_later(_END_OF_TLS_S, self._transport.abort)
        self.close()

    def _end(self) -> None:
        self._has_ended = True
        self._admission.introductions.pop(self, None)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._connecting is not None and self._transport is None:
            self._connecting.cancel()


def _certificate(transport: asyncio.BaseTransport) -> bool:
    """Return True if the peer has presented a certificate, which TLS has then verified."""
    connection = transport.get_extra_info("ssl_object")
    return bool(connection.getpeercert(binary_form=True))
