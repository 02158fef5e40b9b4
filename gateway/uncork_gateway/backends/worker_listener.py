"""Accepts workers on TCP: checks that they know the token, then hands them to the pool."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from uncork_gateway.backends.refusal_log import RefusalLog
from uncork_gateway.backends.worker_introduction import Introduction, Refused
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.version import VERSION
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.handshake import (
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Refusal,
    Welcome,
    decode_greeting,
    encode_greeting,
    is_same,
    launch_token,
    with_gateway_proof,
    with_worker_proof,
)
from uncork_workers.wire.overrides import Override

log = logging.getLogger("uncork.gateway")

# After a failure to accept, as without free file descriptors.
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
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
    tls: ssl.SSLContext | None = None
    launch_secret: bytes = field(default_factory=lambda: secrets.token_bytes(NONCE_BYTES))


class WorkerListener:
    """Accepts workers that know the token.

    Args:
        pool: gets the accepted connections.
        port: the port to listen on, and its secrets.
        overrides, warmup_seconds: settings to send to the workers; see :meth:`change`.
        on_refusal: called with the reason for each rejected peer.
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
        self.requires_certificate = port.tls is not None and port.tls.verify_mode == ssl.CERT_REQUIRED
        if port.tls is not None and self.requires_certificate:
            # TLS would refuse a worker without a certificate, too, but the loop sends no alert that says why.
            port.tls.verify_mode = ssl.CERT_OPTIONAL
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

    def answer(self, header: bytes, nonce: bytes) -> Application:
        """Return a peer's response to the challenge ``nonce``, if it proves its token.

        Raises:
            Refused: if the response is invalid, or the token is wrong.
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
        expected = with_worker_proof(self._token(answer.launch), nonce, answer)
        if not is_same(answer.proof, expected.proof):
            if answer.launch is None:
                raise Refused("token", "the worker's token differs from the gateway's")
            raise Refused("token", f"the worker is not launch {answer.launch} of this gateway")
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
        index = self._pool.admit(transport, application)
        welcome = Welcome(b"", index, self._overrides, self._warmup_seconds)
        token = self._token(application.launch)
        transport.write(encode_greeting(with_gateway_proof(token, nonce, application.nonce, welcome)))

    def refused(self, peer: str, refused: Refused) -> None:
        """Count and log a rejected peer."""
        self._on_refusal(refused.reason)
        self._log.refused(refused.reason, peer, str(refused))

    def _token(self, launch: int | None) -> bytes:
        return self._port.token if launch is None else launch_token(self._port.launch_secret, launch)
