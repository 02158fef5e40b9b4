"""The sockets of a server, with TLS and API keys."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import psutil

from uncork.config.errors import WrongUsage
from uncork.server.credentials import Credentials, read_credentials
from uncork.server.server_options import ServerOptions
from uncork.server.unix_listener import unix_listener
from uncork_workers.extras import install_command
from uncork_workers.wire.certificates import ServerTls
from uncork_workers.wire.dialing import Address

# The system closes a connection whose client has read nothing of its reply for this time.
_UNREAD_MS = 30_000
# The address to print for a server that listens on all addresses.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The open sockets of a server, and what they require of clients.

    Attributes:
        public: for clients.
        unix: for clients of this machine, without TLS; None if there are none.
        admin: for operators, without TLS and keys; None if they use the public socket.
        grpc: for gRPC clients; None if there are none.
        grpc_tls: the TLS of that socket, if any.
        grpc_max_connection_age_s: how old a connection to it gets; None: as old as the client wants.
        tls: the TLS of the public socket, if any.
        credentials: the current keys and certificates.
    """

    public: socket.socket
    admin: socket.socket | None
    tls: ServerTls | None = None
    credentials: Credentials = field(default_factory=Credentials)
    unix: socket.socket | None = None
    grpc: socket.socket | None = None
    grpc_tls: ServerTls | None = None
    grpc_max_connection_age_s: float | None = None

    def renew(self, credentials: Credentials) -> None:
        """Use other certificates for the connections that begin from now on."""
        for tls, context in ((self.tls, credentials.tls), (self.grpc_tls, credentials.grpc_tls)):
            if tls is not None and context is not None:
                tls.renew(context)

    @property
    def port(self) -> int:
        port: int = self.public.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return _url("https" if self.tls else "http", self.public)

    @property
    def unix_path(self) -> str:
        """The path of the Unix socket; empty without one."""
        return "" if self.unix is None else str(self.unix.getsockname())

    @property
    def grpc_target(self) -> str:
        """The address for gRPC clients."""
        return "" if self.grpc is None else _address(self.grpc)

    @property
    def admin_url(self) -> str:
        """The base URL for operators."""
        return self.url if self.admin is None else _url("http", self.admin)


def check_listeners(options: ServerOptions) -> Credentials:
    """Check the options of listeners as far as that needs no port; return the keys and certificates.

    Raises:
        WrongUsage: if keys or certificates cannot be used, two listeners are given one port, or packages for
            gRPC are missing.
    """
    port = options.grpc_port
    if port is not None:
        require_grpc("--grpc-port")
    if port and port in (options.port, options.admin_port):
        other = "--port" if port == options.port else "--admin-port"
        raise WrongUsage(f"{other} and --grpc-port are both {port}; choose another --grpc-port")
    return read_credentials(options)


@contextmanager
def open_listeners(options: ServerOptions) -> Iterator[Listeners]:
    """Listen, until the block ends.

    Raises:
        WrongUsage: as :func:`check_listeners`.
        OSError: with a message for people, if a port or the Unix socket cannot be opened.
    """
    credentials = check_listeners(options)
    with ExitStack() as stack:
        public = stack.enter_context(listening_socket(options.host, options.port, option="--port"))
        admin = None
        if options.admin_port is not None:
            admin = stack.enter_context(_admin_socket(options, options.admin_port))
        grpc = None
        if options.grpc_port is not None:
            grpc = stack.enter_context(
                listening_socket(options.host, options.grpc_port, option="--grpc-port")
            )
        unix = None if options.uds is None else stack.enter_context(unix_listener(options.uds))
        yield Listeners(
            public=public,
            unix=unix,
            admin=admin,
            tls=None if credentials.tls is None else ServerTls(credentials.tls),
            credentials=credentials,
            grpc=grpc,
            grpc_tls=None if credentials.grpc_tls is None else ServerTls(credentials.grpc_tls),
            grpc_max_connection_age_s=options.grpc_max_connection_age,
        )


def require_grpc(what: str) -> None:
    """Check that the packages for gRPC are installed; ``what`` needs them.

    Raises:
        WrongUsage: if one is missing.
    """
    try:
        for package in ("grpcio", "hpack", "protobuf"):
            version(package)
    except PackageNotFoundError as error:
        raise WrongUsage(f"{what} requires {error.name}; run {install_command('grpc')}") from None


def _admin_socket(options: ServerOptions, port: int) -> socket.socket:
    try:
        return listening_socket(options.admin_host, port, option="--admin-port")
    except OSError as error:
        if error.errno != errno.EADDRINUSE or port != options.port:
            raise
        raise WrongUsage(
            f"--port and --admin-port are both {port}, and --host {options.host} overlaps with --admin-host "
            f"{options.admin_host}; choose another --admin-port, or omit it to serve the operator pages on "
            "--port"
        ) from None


def listening_socket(host: str, port: int, *, option: str) -> socket.socket:
    """Listen on a port.

    Listening early claims the port: several sockets may bind one until one of them listens.

    Raises:
        OSError: with a message for people that advises to change ``option``, or the option of the host.
    """
    of_host = {"--admin-port": "--admin-host", "--worker-port": "--worker-host"}.get(option, "--host")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OSError(
            error.errno, f"cannot listen on {host!r}: {error.strerror}; choose another {of_host}"
        ) from error
    except UnicodeError:  # a part between its dots is empty or too long
        raise OSError(
            errno.EINVAL, f"cannot listen on {host!r}: it is not the name of a host; choose another {of_host}"
        ) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. A gRPC client that vanishes while it is idle would keep its place for ever.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        by = _listener_on(port) if error.errno == errno.EADDRINUSE else ""
        if error.errno == errno.EADDRNOTAVAIL:
            advice = f"choose a {of_host} of this machine, such as 127.0.0.1 or 0.0.0.0"
        else:
            advice = f"choose another {option}"
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}{by}; {advice}"
        ) from error
    return listener


def _listener_on(port: int) -> str:
    """Name the process that listens on a port, if the system reports it."""
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


def _url(scheme: str, listener: socket.socket) -> str:
    return f"{scheme}://{_address(listener)}"


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return str(Address(_REACHED_AT.get(host, host), port))
