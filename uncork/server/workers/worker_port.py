"""The port to which workers on other machines connect, and the options that name those machines."""

import ipaddress
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from uncork.config.errors import WrongUsage
from uncork.config.option_fields import flags, option
from uncork.server.credentials import Credentials
from uncork.server.listeners import listening_socket
from uncork.server.server_options import ServerOptions
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.wire.certificates import ServerTls
from uncork_workers.wire.dialing import Address

_NEED_PORT = (
    "worker_host",
    "worker_token_file",
    "worker_tls_cert",
    "worker_tls_key",
    "worker_tls_client_ca",
    "worker_insecure",
)
LOCAL = "local"
"""The value of --on for workers on this machine."""
_RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPortOptions(ServerOptions):
    """The options of a server to which workers connect over TCP."""

    worker_port: int | None = option(
        None,
        "Port for workers on other machines, which `uncork worker` starts; 0 picks a free one.",
        min=0,
        max=65535,
        show_default="no such workers; 0 with --on ray",
    )
    worker_host: str = option("127.0.0.1", "Address to listen on with --worker-port.")
    worker_token_file: Path | None = option(
        None,
        "File with the secret that gateway and workers share; required with --worker-port, "
        "except with --on ray, where it admits workers that `uncork worker` starts.",
        metavar="FILE",
        show_default=False,
    )
    worker_tls_cert: Path | None = option(
        None,
        "Certificate chain (PEM) for --worker-port; required unless --worker-host is a loopback address.",
        metavar="FILE",
        show_default="plain TCP",
    )
    worker_tls_key: Path | None = option(
        None,
        "Private key for --worker-tls-cert (PEM), unencrypted.",
        metavar="FILE",
        show_default="read from --worker-tls-cert",
    )
    worker_tls_client_ca: Path | None = option(
        None,
        "CA certificates (PEM); workers must present a certificate signed by one of them.",
        metavar="FILE",
        show_default="no certificate required",
    )
    worker_insecure: bool = option(
        False,
        "Accept workers without TLS on any address; requests and results then cross the network unencrypted.",
        "--worker-insecure",
    )


def check_worker_port(options: WorkerPortOptions, *, has_port: bool) -> None:
    """Refuse the options that matter only with a worker port, unless there is one.

    Raises:
        WrongUsage: if there is none and one of them is given.
    """
    unset = WorkerPortOptions()
    given = [name for name in _NEED_PORT if getattr(options, name) != getattr(unset, name)]
    if given and not has_port:
        requires = "requires" if len(given) == 1 else "require"
        raise WrongUsage(f"{', '.join(flags(*given).values())} {requires} --worker-port or --on ray")


def check_connections(options: WorkerPortOptions, *, workers: int, on_ray: bool) -> None:
    """Refuse a server to which no worker can connect, or any: without a token, or on the network without TLS.

    ``workers`` is the most that the server starts.

    Raises:
        WrongUsage: if it is one.
    """
    if options.worker_port is None and not on_ray:
        if not workers:
            raise WrongUsage("--workers 0 requires --worker-port, where workers can connect")
        return
    if options.worker_token_file is None and not on_ray:
        raise WrongUsage(
            "--worker-port requires --worker-token-file, a file with a secret; make one with: "
            "openssl rand -hex 32"
        )
    has_tls = options.worker_tls_cert is not None
    if not (has_tls or options.worker_insecure or is_loopback(options.worker_host)):
        raise WrongUsage(
            f"--worker-host {options.worker_host} requires --worker-tls-cert: without TLS, requests and "
            "results cross the network unencrypted; to accept that, give --worker-insecure"
        )


@contextmanager
def open_worker_port(
    options: WorkerPortOptions, credentials: Credentials, *, workers: int, on_ray: bool = False
) -> Iterator[WorkerPort | None]:
    """Listen for workers until the block ends; give None if all are on this machine.

    Raises:
        WrongUsage: if an option is missing, or a file cannot be used.
        OSError: with a message for people, if the port cannot be opened.
    """
    check_connections(options, workers=workers, on_ray=on_ray)
    if options.worker_port is None and not on_ray:
        yield None
        return
    # Without a file, only workers on Ray can connect, each with a token of its own.
    token, tls = credentials.token or secrets.token_hex(32).encode(), credentials.tls
    port = options.worker_port or 0
    with listening_socket(options.worker_host, port, option="--worker-port") as listener:
        yield WorkerPort(listener=listener, token=token, tls=None if tls is None else ServerTls(tls))


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def waiting_for_workers(port: WorkerPort, admin_url: str, *, target: str, token_file: Path | None) -> str:
    """Return how to start a worker on another machine, and where to see it."""
    host, number = port.listener.getsockname()[:2]
    address = Address(host, number)
    dialed = f"HOST:{number}" if host in ("0.0.0.0", "::") else str(address)
    tls = " --ca FILE" if port.tls is not None else ""
    return (
        f"workers can connect to {address}: uncork worker {target or 'TARGET'} --gateway {dialed} "
        f"--token-file {token_file}{tls}; see {admin_url}/status"
    )


_HEAD = re.compile(r"(ray://)?([^\s/:]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})")
_ADDRESS = re.compile(r"(?P<host>[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?")


def read_place(text: str) -> str | None:
    """Return the address for ``ray.init`` of a value of ``--on``; None for this machine.

    Raises:
        ValueError: if it is not a place.
    """
    if text == LOCAL:
        return None
    if text == _RAY:
        return os.environ.get("RAY_ADDRESS") or "auto"
    if _has_port(_HEAD.fullmatch(text)):
        return text
    raise ValueError(
        f"{text!r} is not a place for workers; give local, ray, HOST:PORT or ray://HOST:PORT, "
        "with a port from 1 to 65535"
    )


def read_worker_address(text: str) -> tuple[str, int | None]:
    """Return host and port of a value of ``--worker-address``; None for a port that is not given.

    Raises:
        ValueError: if it is not an address.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or not (found["port"] is None or _has_port(found)):
        raise ValueError(f"{text!r} is not an address; give HOST or HOST:PORT, with a port from 1 to 65535")
    return found["host"].strip("[]"), int(found["port"]) if found["port"] else None


def _has_port(found: re.Match[str] | None) -> bool:
    return found is not None and 1 <= int(found["port"]) <= 65535
