"""The worker process: load a service, set it up, then execute one batch at a time from the socket."""

import argparse
import gc
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import closing
from io import TextIOWrapper

import msgspec

from uncork_workers.definition.hints import adding_hints
from uncork_workers.definition.loading import TargetError, load_service, service_files
from uncork_workers.definition.service import Service, describe_service
from uncork_workers.process.execution import Executor
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.process.libc import die_with, keep_freed_memory
from uncork_workers.process.logs import log_to_stderr
from uncork_workers.process.warmup import WarmupFailed, examples_of, warm_up
from uncork_workers.wire.frames import split_payload
from uncork_workers.wire.messages import Failed, Hello, Ready, Stage, WarmUp
from uncork_workers.wire.overrides import Override

log = logging.getLogger("uncork.worker")

EXIT_LOAD = 2
EXIT_SETUP = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the gateway closes the socket. Exit code 2: load failed; 1: setup or warm-up failed."""
    parser = argparse.ArgumentParser(prog="python -m uncork_workers", description=__doc__)
    parser.add_argument("target", help="MODULE:SERVICE or FILE.py:SERVICE")
    parser.add_argument("--socket", required=True, help="Unix socket of the gateway")
    parser.add_argument("--index", required=True, type=int, help="number of this worker, from 0")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text", choices=["text", "json"])
    parser.add_argument(
        "--warmup-seconds", default=0.0, type=float, help="most seconds to spend on the warm-up; 0 skips it"
    )
    overrides = msgspec.json.Decoder(list[Override])
    parser.add_argument(
        "--overrides", default="[]", type=overrides.decode, help="overrides of @api arguments, as JSON"
    )
    parser.add_argument("--parent", type=int, help="PID of the process to exit with")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        die_with(options.parent)
    keep_freed_memory()
    if isinstance(sys.stdout, TextIOWrapper):
        # Show the output of handlers at once, also in a file.
        sys.stdout.reconfigure(line_buffering=True)
    # Ctrl-C and a service manager's SIGTERM reach every process; the gateway drains, then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log_to_stderr(options.log_level, f"worker {options.index}", log_format=options.log_format)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(options.socket)
            return _serve(options, GatewayConnection(connection))
        except (BrokenPipeError, ConnectionRefusedError, ConnectionResetError, FileNotFoundError):
            return 0  # the gateway is gone


def _serve(options: argparse.Namespace, gateway: GatewayConnection) -> int:
    target, index = options.target, options.index
    try:
        service_class = load_service(target)
    except TargetError as error:
        gateway.send(_failed(index, "load", str(error), error.__cause__))
        return EXIT_LOAD
    gateway.send(Hello(index, os.getpid(), describe_service(service_class), service_files(target)))
    try:
        service = service_class()
        service.worker_index = index
        with adding_hints(service):
            service.setup()
    except (Exception, SystemExit) as error:
        gateway.send(_failed(index, "setup", f"{type(error).__name__}: {error}", error))
        return EXIT_SETUP
    _freeze_objects()
    try:
        with closing(Executor(service, gateway)) as executor:
            return _warm_up_and_run(service_class, executor, options, gateway)
    finally:
        _tear_down(service)


def _tear_down(service: Service) -> None:
    try:
        with adding_hints(service):
            service.teardown()
    except Exception:
        log.exception("teardown of %s failed; the worker exits anyway", type(service).__name__)


def _warm_up_and_run(
    service: type[Service], executor: Executor, options: argparse.Namespace, gateway: GatewayConnection
) -> int:
    try:
        examples = examples_of(service, options.overrides) if options.warmup_seconds else []
        results = warm_up(
            executor,
            examples,
            seconds=options.warmup_seconds,
            on_size=lambda api, rows: gateway.send(WarmUp(api=api, rows=rows)),
        )
    except WarmupFailed as error:
        gateway.send(_failed(options.index, "warmup", str(error), error.__cause__))
        return EXIT_SETUP
    _freeze_objects()
    ready = Ready(
        files=service_files(options.target),
        profile={api: one.chunks for api, one in results.items()},
        results={api: one.result for api, one in results.items() if one.result is not None},
    )
    gateway.send(ready)
    run_batches(executor, gateway)
    return 0


def _freeze_objects() -> None:
    """Exempt all current objects, which live as long as the worker, from garbage collection pauses."""
    gc.collect()
    gc.freeze()


def run_batches(executor: Executor, gateway: GatewayConnection) -> None:
    """Execute batches until the gateway closes the connection.

    Raises:
        FrameError: if the gateway sends an unexpected message.
    """
    for message, payload in gateway.batches():
        reply, bodies = executor.run(message, split_payload(payload, message.lengths))
        gateway.send(reply, bodies)


def _failed(index: int, stage: Stage, message: str, cause: BaseException | None) -> Failed:
    text = "" if cause is None else "".join(traceback.format_exception(cause))
    return Failed(index=index, stage=stage, message=message, traceback=text)
