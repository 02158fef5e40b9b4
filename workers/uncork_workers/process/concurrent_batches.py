"""Serve the batches of a service of which a worker runs several at once.

A thread reads batches. Each batch of an API with ``concurrency`` runs in a thread, and all handlers in one
event loop. The main thread runs the other batches, one at a time.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.children import WorkerCode
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Batch

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
        self._turns: SimpleQueue[tuple[Batch, list[bytes]] | None] = SimpleQueue()
        """For the main thread; None: the gateway sends no more."""
        self._errors: list[BaseException] = []

    def serve(self) -> None:
        """Execute batches until the connection ends.

        Raises:
            FrameError: if the gateway sends an unexpected message.
            OSError: if the connection breaks.
        """
        self._gateway.share(in_order=False)
        threads = sum(self._executor.concurrency.values())
        with ThreadPoolExecutor(threads, thread_name_prefix="uncork batch") as pool:
            reader = threading.Thread(target=self._attempt, args=(self._read, pool), daemon=True)
            reader.start()
            try:
                while (turn := self._turns.get()) is not None:
                    self._execute(*turn)
            finally:
                self._gateway.stop_reading()
                reader.join()
        if self._errors:
            raise self._errors[0]

    def _read(self, pool: ThreadPoolExecutor) -> None:
        try:
            for batch, bodies in self._gateway.batches():
                if batch.api in self._executor.concurrency:
                    pool.submit(self._attempt, self._execute, batch, bodies)
                else:
                    self._turns.put((batch, bodies))
        finally:
            self._turns.put(None)

    def _execute(self, batch: Batch, bodies: list[bytes]) -> None:
        due = time.monotonic() + batch.timeout_s + _ENDING_S
        self._due.append(due)
        try:
            with WorkerCode():
                reply, results = self._executor.run(batch, bodies)
        finally:
            self._due.remove(due)
        self._gateway.reply(reply, results)

    def _attempt(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in a thread other than the main one, which raises its exception."""
        try:
            call(*arguments)
        except BaseException as error:
            self._errors.append(error)
            self._gateway.stop_reading()
