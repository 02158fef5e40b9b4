"""A worker that dials gateways by itself, and keeps its model from one connection to the next."""

from __future__ import annotations

import errno
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from uncork_workers.memory import mebibytes, resident_bytes
from uncork_workers.process.children import Stopped, handle_signals
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.process.hosted_service import HostedService, Settings, StageFailed
from uncork_workers.wire.dialing import VERSION, Connected, GatewayRefuses, GatewayUnreachable
from uncork_workers.wire.frames import FrameError

log = logging.getLogger("uncork.worker")

# Doubles up to the longest; at random, so that the workers of a gateway do not return in step.
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 10.0
# How long after its timeout a batch ends the process. The gateway has given the batch up by then.
_OVERDUE_S = 1.0
_LOG_AGAIN_S = 60.0


class ReadyFile:
    """Exists while the worker has loaded its model and is connected to a gateway.

    Args:
        path: None for no file. A file left by an earlier process is removed.

    Raises:
        OSError: if the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is None:
            return
        path.unlink(missing_ok=True)
        # It must not exist for even a moment, so its folder is checked instead of writing it.
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def create(self) -> None:
        if self._path is None:
            return
        try:
            self._path.touch()
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error.strerror)

    def remove(self) -> None:
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error("cannot remove %s: %s", self._path, error.strerror)


class MemoryLimit:
    """Checks the resident memory of this process.

    If the process exceeds the limit before its first batch, the limit is dropped: every restart would exceed
    it, too.

    Args:
        limit_bytes: None for no limit.
        used_bytes: returns the resident memory.
    """

    def __init__(
        self, limit_bytes: int | None, *, used_bytes: Callable[[], int] = lambda: resident_bytes(os.getpid())
    ) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = used_bytes
        self._is_checked = False

    def check_before_batches(self) -> None:
        """Drop the limit, with a warning, if the model alone exceeds it. Later calls do nothing."""
        excess = "" if self._is_checked else self.excess()
        self._is_checked = True
        if excess:
            log.warning(
                "this worker %s before its first batch; it will not leave for its memory. Raise --max-memory",
                excess,
            )
            self._limit_bytes = None

    def excess(self) -> str:
        """Return by how much the process exceeds the limit, as a clause; empty if it does not."""
        if self._limit_bytes is None or (used := self._used_bytes()) <= self._limit_bytes:
            return ""
        return f"uses {mebibytes(used)}, more than the limit of {mebibytes(self._limit_bytes)},"


class MemoryExceeded(Exception):
    """The worker has left its gateway because it uses too much memory; the message says how much."""


class RemoteWorker:
    """Serves one gateway after the other until a signal.

    SIGTERM or SIGINT makes it finish its batch and leave; a second one ends it at once.

    Args:
        dial: connects to a gateway, or raises what :meth:`Dialer.dial` does.
        node: names this machine to the gateway.
        memory: the limit above which the worker finishes its batch and leaves.
    """

    def __init__(
        self,
        hosted: HostedService,
        dial: Callable[[], Connected],
        *,
        node: str,
        ready_file: ReadyFile | None = None,
        memory: MemoryLimit | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._hosted = hosted
        self._dial_once = dial
        self._node = node
        self._ready_file = ready_file or ReadyFile(None)
        self._memory = memory or MemoryLimit(None)
        self._excess = ""
        self._sleep = sleep
        self._delay_s = _FIRST_DELAY_S
        self._gateway: GatewayConnection | None = None
        self._is_stopping = False

    def run(self) -> None:
        """Serve until a signal. Call it in the main thread.

        Raises:
            GatewayRefuses: if gateway and worker do not fit together.
            StageFailed: if the service cannot be set up or warmed up.
            MemoryExceeded: if it has left because of its memory.
        """
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        handle_signals(self._on_signal, restart=False)
        threading.Thread(target=self._watch, name="uncork watchdog", daemon=True).start()
        try:
            self._serve_gateways()
        except Stopped:
            pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._excess:
            raise MemoryExceeded(f"the worker {self._excess} and has left its gateway")
        log.info("stopped")

    def _serve_gateways(self) -> None:
        while True:
            connected = self._dial()
            began = time.monotonic()
            self._serve(connected)
            if self._is_stopping:
                return
            # A gateway that ends every connection at once must not be dialed all the time.
            if time.monotonic() - began > _LONGEST_DELAY_S:
                self._delay_s = _FIRST_DELAY_S
            self._pause()

    def _dial(self) -> Connected:
        """Connect to a gateway, however long that takes."""
        logged_at, logged = 0.0, ""
        while True:
            try:
                return self._dial_once()
            except GatewayUnreachable as error:
                reason, now = str(error), time.monotonic()
                if reason != logged or now - logged_at > _LOG_AGAIN_S:
                    log.warning("no gateway answers, dialing again: %s", reason)
                    logged, logged_at = reason, now
            self._pause()

    def _pause(self) -> None:
        self._sleep(self._delay_s * random.uniform(0.5, 1.5))
        self._delay_s = min(2 * self._delay_s, _LONGEST_DELAY_S)

    def _serve(self, connected: Connected) -> None:
        connection, address, gateway_version, welcome = connected
        if gateway_version != VERSION:
            log.warning(
                "the gateway has uncork %s, this worker has %s; install the same version on both sides",
                *(gateway_version, VERSION),
            )
        log.info("connected to gateway %s as worker %d", address, welcome.index)
        reason = "it closed the connection"
        with closing(connection):
            self._gateway = gateway = GatewayConnection(connection, on_ready=self._is_ready)
            try:
                gateway.send(self._hosted.hello(welcome.index, host=self._node, version=VERSION))
                settings = Settings(welcome.warmup_seconds, welcome.overrides)
                self._hosted.serve(gateway, welcome.index, settings)
            except StageFailed as error:
                with suppress(OSError):  # it may have gone meanwhile
                    gateway.send(error.failed)
                raise
            except (OSError, FrameError) as error:
                reason = str(error)
            finally:
                self._gateway = None
                self._ready_file.remove()
        if self._is_stopping:
            return
        goodbye = gateway.goodbye
        if goodbye is None:
            log.warning("gateway %s is gone (%s); dialing again", address, reason)
        elif goodbye.is_final:
            raise GatewayRefuses(f"{address}: {goodbye.reason}")
        else:
            log.info("gateway %s closed the connection: %s; dialing again", address, goodbye.reason)

    def _is_ready(self) -> None:
        self._memory.check_before_batches()
        self._ready_file.create()

    def _on_signal(self, number: int, frame: FrameType | None) -> Any:
        gateway = self._gateway
        if self._is_stopping or gateway is None or not gateway.runs_batches:
            raise Stopped
        self._is_stopping = True
        log.info("leaving the gateway")
        gateway.leave()

    def _watch(self) -> None:
        """End this process when a batch runs past its timeout: no gateway can kill it from afar.

        Leave when the process uses too much memory.
        """
        while True:
            time.sleep(_OVERDUE_S)
            if time.monotonic() > self._hosted.due_at + _OVERDUE_S:
                log.critical("a batch exceeds its timeout; ending this worker")
                self._ready_file.remove()
                os._exit(1)
            gateway = self._gateway
            if gateway is None or not gateway.runs_batches or self._is_stopping or self._excess:
                continue
            self._excess = self._memory.excess()
            if self._excess:
                # As from outside: it interrupts the wait for a batch, but not a batch.
                os.kill(os.getpid(), signal.SIGTERM)
