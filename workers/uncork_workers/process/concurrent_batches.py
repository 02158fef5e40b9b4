"""Serve the batches of a service of which a worker runs several at once.

A thread reads batches. Each batch of an API with ``concurrency`` runs in a thread, and all handlers in one
event loop. The main thread runs the other batches, one at a time.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.children import Stopped, WorkerCode
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Batch, Reply

log = logging.getLogger("uncork.worker")

Turns = SimpleQueue[tuple[Batch, list[bytes]] | None]
"""Batches to run; None ends the thread that gets it."""

# The handler of a batch past its timeout has this long to end. Then the gateway, or a remote worker itself,
# ends the process.
_ENDING_S = 1.0


class ConcurrentBatches:
    """Serves the batches of one connection.

    Args:
        due: gets the monotonic times at which the batches that run should have ended.
    """

    def __init__(self, gateway: GatewayConnection, executor: Executor, due: list[float]) -> None:
        self._gateway = gateway
        self._executor = executor
        self._due = due
        self._turns: Turns = SimpleQueue()
        """For the main thread."""
        self._beside: Turns = SimpleQueue()
        """For the other threads, which are daemons: a batch that hangs must not keep the process alive."""
        self._threads: list[threading.Thread] = []
        self._most_threads = math.inf
        self._idle = threading.Semaphore(0)
        """Counts the threads that wait for a batch."""
        self._errors: list[BaseException] = []

    def serve(self) -> None:
        """Execute batches until the connection ends.

        Raises:
            FrameError: if the gateway sends an unexpected message.
            OSError: if the connection breaks.
            Stopped: at once, whatever still runs.
        """
        self._gateway.share(in_order=False)
        reader = threading.Thread(target=self._attempt, args=(self._read,), daemon=True)
        reader.start()
        self._attempt(self._run, self._turns)
        reader.join()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _read(self) -> None:
        try:
            for batch, bodies in self._gateway.batches():
                if batch.api in self._executor.concurrency:
                    self._beside.put((batch, bodies))
                    self._ensure_thread()
                else:
                    self._turns.put((batch, bodies))
        finally:
            self._turns.put(None)
            for _ in self._threads:
                self._beside.put(None)

    def _ensure_thread(self) -> None:
        """Start a thread unless an idle one gets the batch, or the system allows no more."""
        count = len(self._threads)
        if self._idle.acquire(blocking=False) or count == self._most_threads:
            return
        name = f"uncork batch {count}"
        thread = threading.Thread(
            target=self._attempt, args=(self._run, self._beside), name=name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            if not count:
                raise
            self._most_threads = count
            log.warning(
                "the worker runs at most %d batches at once: %s; raise its limits of memory and threads, or "
                "lower concurrency",
                *(count, error),
            )
        else:
            self._threads.append(thread)

    def _run(self, turns: Turns) -> None:
        while (turn := turns.get()) is not None:
            reply, results = self._execute(*turn)
            self._gateway.reply(reply, results)
            if turns is self._beside:  # not earlier: the next batch would wait until a large reply is sent
                self._idle.release()
            del turn, reply, results  # they may be large, and the next batch may be long in coming

    def _execute(self, batch: Batch, bodies: list[bytes]) -> tuple[Reply, list[bytes]]:
        due = time.monotonic() + batch.timeout_s + _ENDING_S
        self._due.append(due)
        try:
            with WorkerCode():
                return self._executor.run(batch, bodies)
        finally:
            self._due.remove(due)

    def _attempt(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function; its exception ends the iteration over batches, then the main thread raises it."""
        try:
            call(*arguments)
        except Stopped:
            raise
        except BaseException as error:
            self._errors.append(error)
            self._gateway.stop_reading()
