"""The worker process that the gateway's supervisor launches, for one connection."""

import argparse
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import closing

import msgspec

from uncork_workers.definition.loading import TargetError
from uncork_workers.process.children import handle_signals
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.process.hosted_service import HostedService, Settings, StageFailed, failed
from uncork_workers.process.libc import die_with, keep_freed_memory, limit_data
from uncork_workers.process.logs import log_to_stderr
from uncork_workers.process.streams import outlive_readers
from uncork_workers.wire.dialing import (
    VERSION,
    Dialer,
    GatewayRefuses,
    GatewayUnreachable,
    read_addresses,
    trusting,
)
from uncork_workers.wire.handshake import CERTIFICATE_VARIABLE, PROTOCOL, TOKEN_VARIABLE
from uncork_workers.wire.overrides import Override

log = logging.getLogger("uncork.worker")

EXIT_SETUP = 1
EXIT_LOAD = 2
EXIT_UNREACHABLE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the gateway closes the connection.

    Returns the exit code: 1 if setup or warm-up failed, 2 if the service cannot be loaded, 3 if the gateway
    cannot be reached over TCP, else 0.
    """
    options = _parse(arguments)
    if options.parent is not None:
        die_with(options.parent)
    if options.memory_limit is not None:
        limit_data(options.memory_limit)
    keep_freed_memory()
    outlive_readers()
    # A service manager's SIGTERM may reach every process; the gateway drains, then closes the socket.
    handle_signals(lambda number, frame: None, restart=True)
    log_to_stderr(options.log_level, f"worker {options.index}", log_format=options.log_format)
    try:
        with closing(GatewayConnection(_connect(options))) as gateway:
            return _serve(options, gateway)
    except OSError:
        return 0  # the gateway is gone
    except GatewayUnreachable as error:
        log.error("cannot reach the gateway: %s", error)
        return EXIT_UNREACHABLE
    except GatewayRefuses as error:
        log.error("%s", error)
        return EXIT_LOAD


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m uncork_workers", description=__doc__)
    parser.add_argument("target", help="MODULE:SERVICE, FILE.py:SERVICE or a model file")
    gateway = parser.add_mutually_exclusive_group(required=True)
    gateway.add_argument("--socket", help="Unix socket of the gateway")
    gateway.add_argument(
        "--gateway",
        type=read_addresses,
        help=f"worker port of the gateway; the token is in ${TOKEN_VARIABLE}, and a certificate to require, "
        f"if any, in ${CERTIFICATE_VARIABLE}",
    )
    parser.add_argument(
        "--protocol", type=int, default=PROTOCOL, help="worker protocol of the gateway, with --socket"
    )
    parser.add_argument("--standby", action="store_true", help="wait to take over from another worker")
    parser.add_argument("--index", required=True, type=int, help="number of this worker, from 0")
    parser.add_argument("--launch", required=True, type=int, help="identifies this process to the supervisor")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text", choices=["text", "json"])
    parser.add_argument(
        "--warmup-seconds", default=0.0, type=float, help="most seconds to spend on the warm-up; 0 skips it"
    )
    overrides = msgspec.json.Decoder(list[Override])
    parser.add_argument(
        "--overrides", default="[]", type=overrides.decode, help="overrides of @api arguments, as JSON"
    )
    parser.add_argument("--trust-pickle", action="store_true", help="load model files that can run any code")
    parser.add_argument("--memory-limit", type=int, help="most bytes of data of this process")
    parser.add_argument("--node", default="", help="name of this machine, unless it is the gateway's")
    parser.add_argument("--parent", type=int, help="PID of the process to exit with")
    return parser.parse_args(arguments)


def _connect(options: argparse.Namespace) -> socket.socket:
    if options.gateway is None:
        if options.protocol != PROTOCOL:
            raise GatewayRefuses(
                f"this worker's Uncork ({VERSION}) speaks worker protocol {PROTOCOL}, the gateway speaks "
                f"{options.protocol}; install the gateway's version in the environment of {sys.executable}"
            )
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(options.socket)
        except OSError:
            connection.close()
            raise
        return connection
    certificate = os.environ.get(CERTIFICATE_VARIABLE)
    dialer = Dialer(
        addresses=options.gateway,
        token=os.environ[TOKEN_VARIABLE].encode(),
        tls=None if certificate is None else trusting(certificate),
        instance=f"launch {options.launch}",
        launch=options.launch,
        standby=options.standby,
    )
    return dialer.dial().connection


def _serve(options: argparse.Namespace, gateway: GatewayConnection) -> int:
    index = options.index
    try:
        hosted = HostedService(options.target, trust_pickle=options.trust_pickle)
    except TargetError as error:
        gateway.send(failed(index, "load", str(error), error.__cause__))
        return EXIT_LOAD
    with closing(hosted):
        gateway.send(hosted.hello(index, launch=options.launch, host=options.node))
        try:
            hosted.serve(gateway, index, Settings(options.warmup_seconds, options.overrides))
        except StageFailed as error:
            gateway.send(error.failed)
            return EXIT_SETUP
    return 0
