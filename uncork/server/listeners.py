"""Where a server listens, and who may come in: sockets, TLS, API keys."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from uncork.config.errors import WrongUsage
from uncork_gateway.auth import ApiKeys, WrongKeys, read_keys

# A client that takes none of its answer for so long is cut off by the system, which alone sees what it takes.
_UNREAD_MS = 30_000
# Who listens on all addresses is reached at this one, from where the address is read.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """The options of every command that serves which say where it listens, and who may come in."""

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 3000
    admin_host: Annotated[
        str, typer.Option(help="Address to listen on for operators, with --admin-port.")
    ] = "127.0.0.1"
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port for operators: metrics, status and dashboard are only there, without TLS and keys.",
            show_default="they are at --port",
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keys, one a line; clients must send one as Authorization: Bearer KEY or X-Api-Key: KEY.",
            show_default="everybody may ask",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate chain (PEM); clients then speak HTTPS.",
            show_default="plain HTTP",
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Key of --tls-cert (PEM), without a password.",
            show_default="in --tls-cert",
        ),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Authorities (PEM), one of which must have signed a client's certificate.",
            show_default="clients need none",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The sockets of a server, and what is asked of who comes in.

    Attributes:
        public: for clients.
        admin: for operators, without TLS and keys; None if they use the public one.
        tls: arguments of :class:`uvicorn.Config` for the public one.
        keys: of which a client must have one; None: none is wanted.
    """

    public: socket.socket
    admin: socket.socket | None
    tls: dict[str, Any]
    keys: ApiKeys | None

    @property
    def port(self) -> int:
        """On which clients reach it."""
        port: int = self.public.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return _url("https" if self.tls else "http", self.public)

    @property
    def admin_url(self) -> str:
        """Where operators reach it."""
        return self.url if self.admin is None else _url("http", self.admin)


@contextmanager
def open_listeners(options: ListenerOptions) -> Iterator[Listeners]:
    """Listen, until the block ends.

    Raises:
        WrongUsage: if keys or certificates are not what they should be, or both listeners want one port.
        OSError: if a port cannot be had, with a message for people.
    """
    keys, tls = _keys(options.api_key_file), _tls(options)
    with ExitStack() as stack:
        public = stack.enter_context(listening_socket(options.host, options.port, option="--port"))
        admin = None
        if options.admin_port is not None:
            admin = stack.enter_context(_admin_socket(options, options.admin_port))
        yield Listeners(public=public, admin=admin, tls=tls, keys=keys)


def _admin_socket(options: ListenerOptions, port: int) -> socket.socket:
    try:
        return listening_socket(options.admin_host, port, option="--admin-port")
    except OSError as error:
        if error.errno != errno.EADDRINUSE or port != options.port:
            raise
        raise WrongUsage(
            f"--port and --admin-port are both {port}, and --host {options.host} overlaps with --admin-host "
            f"{options.admin_host}; choose another --admin-port, or leave it out to serve operators at --port"
        ) from None


def listening_socket(host: str, port: int, *, option: str) -> socket.socket:
    """Listen on a port.

    It listens before it is served: the system lets several sockets bind one port until one of them listens.

    Raises:
        OSError: with a message for people; ``option`` is what they can change.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host!r}: {error.strerror}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections have it from their listener
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        by = _listener_on(port) if error.errno == errno.EADDRINUSE else ""
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}{by}; choose another {option}"
        ) from error
    return listener


def _listener_on(port: int) -> str:
    """Which process listens on a port, as far as the system tells."""
    try:
        found = psutil.net_connections(kind="tcp")
        pid = next(
            one.pid
            for one in found
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid
        )
        return f" by {psutil.Process(pid).name()} (process {pid})"
    except (StopIteration, psutil.Error):
        return ""


def _keys(file: Path | None) -> ApiKeys | None:
    if file is None:
        return None
    try:
        return read_keys(file)
    except OSError as error:
        raise WrongUsage(f"--api-key-file: {file}: {error.strerror}") from None
    except WrongKeys as error:
        raise WrongUsage(f"--api-key-file: {error}") from None


def _tls(options: ListenerOptions) -> dict[str, Any]:
    """TLS as uvicorn is told of it, once it has been seen to work."""
    cert, key, client_ca = options.tls_cert, options.tls_key, options.tls_client_ca
    if cert is None:
        if key or client_ca:
            raise WrongUsage("--tls-key and --tls-client-ca are of use with --tls-cert only")
        return {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without the password, a key that has one would make the server ask for it at the terminal.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        raise WrongUsage(
            "--tls-cert and --tls-key must be PEM files of a certificate chain and its key without a "
            f"password: {error}"
        ) from None
    tls: dict[str, Any] = {"ssl_certfile": cert, "ssl_keyfile": key}
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise WrongUsage(f"--tls-client-ca must be a PEM file of certificates: {error}") from None
        tls |= {"ssl_ca_certs": str(client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return tls


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = _REACHED_AT.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
