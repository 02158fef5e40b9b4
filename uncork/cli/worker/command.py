"""``uncork worker``."""

import logging
import secrets
import socket
import ssl
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from uncork.cli.terminal import print_error
from uncork.cli.usage import refusals
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import read_size
from uncork.server.credentials import token_in
from uncork.server.server_options import LogLevel, readable
from uncork_workers.definition.loading import TargetError
from uncork_workers.process.hosted_service import HostedService, StageFailed
from uncork_workers.process.libc import keep_freed_memory
from uncork_workers.process.logs import LogFormat, log_to_stderr
from uncork_workers.process.remote_worker import MemoryExceeded, MemoryLimit, ReadyFile, RemoteWorker
from uncork_workers.process.streams import outlive_readers
from uncork_workers.process.worker import EXIT_LOAD, EXIT_SETUP
from uncork_workers.wire.dialing import Connected, Dialer, GatewayRefuses, client_tls, read_addresses

log = logging.getLogger("uncork.worker")


def worker(
    *,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The service to run, as MODULE:SERVICE, FILE.py:SERVICE or a model file such as model.onnx.",
        ),
    ],
    gateway: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Worker port of the gateway; several, separated by commas, are tried in random order.",
            callback=readable(read_addresses),
        ),
    ],
    token_file: Annotated[
        Path, typer.Option(metavar="FILE", help="File with the secret of the gateway's --worker-token-file.")
    ],
    trust_pickle: Annotated[
        bool,
        typer.Option("--trust-pickle", help="Load model files that can run any code when they are loaded."),
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS; trust the certificate authorities of the system.")
    ] = False,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Use TLS; trust only these CA certificates (PEM).", show_default=False
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate chain (PEM) to present to the gateway.",
            show_default="no certificate",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Private key for --tls-cert (PEM), unencrypted.",
            show_default="read from --tls-cert",
        ),
    ] = None,
    node: Annotated[
        str,
        typer.Option(
            envvar="UNCORK_NODE",
            help="Name of this machine; a batch that is lost with a worker is repeated on another machine.",
            show_default="the host name",
        ),
    ] = "",
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File that exists while the worker is connected and has loaded its model, for probes.",
            show_default="none",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Finish the batch and exit with 1 when the resident memory exceeds this size, such as 500MB "
            "or 2GiB.",
            show_default="never",
            callback=readable(read_size),
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="Minimum level to log.")] = "info",
    log_format: Annotated[
        LogFormat, typer.Option(help="Log as lines of text, or as one JSON object per line.")
    ] = "text",
) -> None:
    """Run a worker for a gateway on another machine.

    It connects to the gateway's --worker-port, and connects again when the gateway has gone, without loading
    the model again. SIGTERM or Ctrl-C makes it finish its batch and leave.
    """
    with refusals("worker"):
        read = partial(
            _dialer,
            gateway,
            token_file,
            lambda: _tls(ca, tls_cert, tls_key) if tls or ca or tls_cert or tls_key else None,
            instance=secrets.token_hex(8),
        )
        dial = _renewing(read)
        ready = _ready_file(ready_file)
    keep_freed_memory()
    outlive_readers()
    log_to_stderr(log_level, "worker", log_format=log_format)
    try:
        with closing(HostedService(target, trust_pickle=trust_pickle)) as hosted:
            memory = MemoryLimit(None if max_memory is None else read_size(max_memory))
            name = node or socket.gethostname()
            RemoteWorker(hosted, dial, node=name, ready_file=ready, memory=memory).run()
    except (TargetError, GatewayRefuses) as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print_error("worker", error)
        raise typer.Exit(EXIT_LOAD) from None
    except StageFailed as error:
        print(error.failed.traceback, end="", file=sys.stderr)
        print_error("worker", f"{error.failed.stage} failed: {error}")
        raise typer.Exit(EXIT_SETUP) from None
    except MemoryExceeded as error:
        print_error("worker", error)
        raise typer.Exit(EXIT_SETUP) from None


def _dialer(
    gateway: str, token_file: Path, tls: Callable[[], ssl.SSLContext | None], *, instance: str
) -> Dialer:
    """Read the token and the certificates."""
    token = token_in(token_file, option="--token-file")
    return Dialer(addresses=read_addresses(gateway), token=token, tls=tls(), instance=instance)


def _renewing(read: Callable[[], Dialer]) -> Callable[[], Connected]:
    """Return a function that dials with what the files say now or, if they cannot be read, said before."""
    dialer = read()

    def dial() -> Connected:
        nonlocal dialer
        try:
            dialer = read()
        except WrongUsage as error:
            log.warning("connecting with what the files said before: %s", error)
        return dialer.dial()

    return dial


def _ready_file(path: Path | None) -> ReadyFile:
    try:
        return ReadyFile(path)
    except OSError as error:
        raise WrongUsage(f"--ready-file: {path}: {error.strerror}") from None


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    if key is not None and cert is None:
        raise WrongUsage("--tls-key requires --tls-cert")
    try:
        return client_tls(ca, cert, key)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
