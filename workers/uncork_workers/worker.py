"""The worker process: loads a service, sets it up, then runs one batch at a time from its socket."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import socket
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Literal

from uncork_workers.context import BatchOfRecord
from uncork_workers.execution import Executor
from uncork_workers.frames import (
    Batch,
    Failed,
    Frame,
    FrameDecoder,
    FrameError,
    Hello,
    Message,
    Ready,
    encode_frame,
    split_payload,
)
from uncork_workers.loading import TargetError, load_service
from uncork_workers.memory import keep_freed_memory
from uncork_workers.parent import die_with
from uncork_workers.service import Service, describe_service
from uncork_workers.watching import service_files

_READ_BYTES = 256 * 1024
EXIT_LOAD = 2
EXIT_SETUP = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the gateway closes the socket. Exit code 2: no such service; 1: its setup failed."""
    parser = argparse.ArgumentParser(prog="python -m uncork_workers", description=__doc__)
    parser.add_argument("target", help="MODULE:SERVICE or FILE.py:SERVICE")
    parser.add_argument("--socket", required=True, help="Unix socket of the gateway")
    parser.add_argument("--index", required=True, type=int, help="number of this worker, from 0")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--parent", type=int, help="process with which this one ends")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        die_with(options.parent)
    keep_freed_memory()
    # Ctrl-C and a service manager's SIGTERM reach every process; the gateway drains, then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(
        level=options.log_level.upper(),
        format=f"%(asctime)s %(levelname)s worker {options.index}%(batch)s: %(message)s",
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(BatchOfRecord())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(options.socket)
            return _serve(options.target, options.index, connection)
        except (BrokenPipeError, ConnectionRefusedError, ConnectionResetError, FileNotFoundError):
            return 0  # the gateway is gone


def _serve(target: str, index: int, connection: socket.socket) -> int:
    try:
        service_class = load_service(target)
    except TargetError as error:
        _send(connection, _failed(index, "load", str(error), error.__cause__))
        return EXIT_LOAD
    hello = Hello(
        index=index,
        pid=os.getpid(),
        service=describe_service(service_class),
        files=service_files(target),
    )
    _send(connection, hello)
    try:
        service = service_class()
        service.worker_index = index
        service.setup()
    except (Exception, SystemExit) as error:
        _send(connection, _failed(index, "setup", f"{type(error).__name__}: {error}", error))
        return EXIT_SETUP
    # What setup has made lives as long as the worker: a look at all of it is a pause in some batch.
    gc.collect()
    gc.freeze()
    _send(connection, Ready(files=service_files(target)))
    try:
        run_batches(service, connection)
    finally:
        service.teardown()
    return 0


def run_batches(service: Service, connection: socket.socket) -> None:
    """Run the batches that come on a socket until the gateway closes it.

    Raises:
        FrameError: if it sends something else.
    """
    with closing(Executor(service)) as executor:
        for message, payload in _frames(connection):
            if not isinstance(message, Batch):
                raise FrameError(f"a worker takes batches, not {type(message).__name__}")
            reply, bodies = executor.run(message, split_payload(payload, message.lengths))
            _send(connection, reply, bodies)


def _frames(connection: socket.socket) -> Iterator[Frame]:
    decoder = FrameDecoder()
    while data := connection.recv(_READ_BYTES):
        yield from decoder.feed(data)


def _send(connection: socket.socket, message: Message, bodies: Sequence[bytes] = ()) -> None:
    connection.sendall(encode_frame(message, bodies))


def _failed(index: int, stage: Literal["load", "setup"], message: str, cause: BaseException | None) -> Failed:
    text = "" if cause is None else "".join(traceback.format_exception(cause))
    return Failed(index=index, stage=stage, message=message, traceback=text)
