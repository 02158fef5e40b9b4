"""Connect to a gateway over TCP: its address, TLS, and the worker's side of the handshake."""

from __future__ import annotations

import random
import secrets
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from uncork_workers.wire.certificates import load_authorities, load_certificate
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.handshake import (
    MAX_APPLICATION_BYTES,
    MAX_WELCOME_BYTES,
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Refusal,
    Welcome,
    encode_greeting,
    is_same,
    read_greeting,
    with_gateway_proof,
    with_worker_proof,
)

# Read once: reading the file takes longer than the rest of a scrape or a page.
VERSION = version("uncork")
_CONNECT_S = 5.0
_LARGEST_PORT = 65535
# Reasons for which a gateway refuses a worker that it may accept later.
_PASSING = ("timeout", "too_many")
# A peer that is gone without a word, for example behind a broken network, is noticed within 10 s. Both are
# needed: keepalive probes are not sent while sent data is unacknowledged, and the user timeout does nothing
# on an idle connection. The kernel answers the probes, so a busy handler does not look like a lost peer.
KEEPALIVE_IDLE_S = 4
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_PROBES = 3
USER_TIMEOUT_S = 10
_LONGEST_MS = 2**31 - 1


class GatewayUnreachable(Exception):
    """No gateway can be connected to at present; the message names each with the reason."""


class GatewayRefuses(Exception):
    """Gateway and worker do not fit together: another token, protocol or service at that address."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_addresses(text: str) -> list[Address]:
    """Parse addresses such as ``gateway:7000,[::1]:7001``.

    Raises:
        ValueError: if one of them is not HOST:PORT.
    """
    return [_read_address(one.strip()) for one in text.split(",")]


def _read_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host) or not port.isdecimal() or not 1 <= int(port) <= _LARGEST_PORT:
        raise ValueError(f"{text!r} is not an address; give HOST:PORT, several separated by commas")
    return Address(host, int(port))


def _is_host(text: str) -> bool:
    try:
        return bool(text.encode("idna"))
    except UnicodeError:  # which looking it up would raise
        return False


def client_tls(ca: Path | None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return the worker's side of TLS; without ``ca``, the system's certificate authorities are trusted.

    Raises:
        ValueError: if a file cannot be read or used; the message names its option of ``uncork worker``.
    """
    if ca is not None:
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca, option="--ca")  # only to check the file
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        load_certificate(context, cert, key, prefix="--tls")
    return context


def trusting(certificate: str) -> ssl.SSLContext:
    """Return the worker's side of TLS that accepts just this certificate of a gateway (PEM)."""
    context = ssl.create_default_context(cadata=certificate)
    # Without it, a certificate would count only if it signs itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class Connected(NamedTuple):
    """A connection to a gateway that has accepted the worker."""

    connection: socket.socket
    address: Address
    gateway_version: str
    welcome: Welcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialer:
    """Connects a worker process to one of its gateways.

    Attributes:
        addresses: the gateways; any of them will do.
        token: the secret that gateway and workers share.
        instance: identifies this process to the gateway, also when it connects again.
        tls: the worker's side of TLS; None for plain TCP.
        launch, standby: see :class:`Application`.
    """

    addresses: Sequence[Address]
    token: bytes
    instance: str
    tls: ssl.SSLContext | None = None
    launch: int | None = None
    standby: bool = False

    def dial(self) -> Connected:
        """Connect to the first gateway that answers, in random order.

        Raises:
            GatewayUnreachable: if none answers.
            GatewayRefuses: if one that answers does not accept the worker, or is not accepted by it.
        """
        failures = []
        for address in random.sample(self.addresses, len(self.addresses)):
            try:
                return self._connect(address)
            except FrameError as error:
                raise GatewayRefuses(f"{address} is not the worker port of a gateway: {error}") from None
            except ssl.SSLCertVerificationError as error:
                raise GatewayRefuses(f"{address}: {error.verify_message}") from None
            except (OSError, EOFError) as error:
                failures.append(f"{address}: {error}")
        raise GatewayUnreachable("; ".join(sorted(failures)))

    def _connect(self, address: Address) -> Connected:
        connection = socket.create_connection(address, timeout=_CONNECT_S)
        try:
            tune(connection)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_hostname=address.host)
            connected = self._shake_hands(connection, address)
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return connected

    def _shake_hands(self, connection: socket.socket, address: Address) -> Connected:
        def receive(count: int) -> bytes:
            data = b""
            while len(data) < count:
                more = connection.recv(count - len(data))
                if not more:
                    raise EOFError("the gateway closed the connection during the handshake; its log says why")
                data += more
            return data

        challenge = read_greeting(receive, Challenge, most=MAX_APPLICATION_BYTES)
        if isinstance(challenge, Refusal):
            raise _refused(address, challenge)
        if challenge.protocol != PROTOCOL:
            message = (
                f"the worker (uncork {VERSION}) speaks worker protocol {PROTOCOL}, the gateway (uncork "
                f"{challenge.version}) speaks {challenge.protocol}; install the same version on both sides"
            )
            connection.sendall(encode_greeting(Refusal(reason="protocol", message=message)))
            raise GatewayRefuses(f"{address}: {message}")
        nonce = secrets.token_bytes(NONCE_BYTES)
        application = Application(
            nonce=nonce,
            proof=b"",
            protocol=PROTOCOL,
            version=VERSION,
            instance=self.instance,
            launch=self.launch,
            standby=self.standby,
        )
        application = with_worker_proof(self.token, challenge.nonce, application)
        connection.sendall(encode_greeting(application))
        welcome = read_greeting(receive, Welcome, most=MAX_WELCOME_BYTES)
        if isinstance(welcome, Refusal):
            raise _refused(address, welcome)
        expected = with_gateway_proof(self.token, challenge.nonce, nonce, welcome)
        if not is_same(welcome.proof, expected.proof):
            raise GatewayRefuses(f"{address}: the gateway does not know the token")
        return Connected(connection, address, challenge.version, welcome)


def _refused(address: Address, refusal: Refusal) -> Exception:
    """Return what to raise when a gateway refuses the worker, for now or for good."""
    if refusal.reason in _PASSING:
        return EOFError(refusal.message)
    return GatewayRefuses(f"{address}: {refusal.message}")


def tune(connection: socket.socket) -> None:
    """Send small frames at once, and notice a peer that has vanished.

    The options that a system does not have are left out: without ``TCP_USER_TIMEOUT``, which only Linux has,
    a peer that vanishes while it is sent data is noticed after minutes.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
    }
    for name, value in values.items():
        if (number := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
    allow_unread(connection, USER_TIMEOUT_S)


def allow_unread(connection: socket.socket, seconds: float) -> None:
    """Let data wait so long for a peer that reads nothing; after that, the system ends the connection."""
    if (number := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        connection.setsockopt(socket.IPPROTO_TCP, number, min(int(1000 * seconds), _LONGEST_MS))
