"""The event loop of the async handlers of a service that runs several batches at once."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.batches.handler_loop import (
    Tasks,
    Watch,
    create_task,
    end_tasks,
    started_tasks,
)
from uncork_workers.process.children import WorkerCode

R = TypeVar("R")


class HandlerLoopThread:
    """One event loop for all batches, in a thread of its own; any thread may run a handler in it.

    A call that fails leaves nothing behind, as in :class:`HandlerLoop`.
    """

    def __init__(self) -> None:
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run_loop, name="uncork handlers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self._started.result().call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def run(self, call: Coroutine[Any, Any, R], departures: Departures | None = None) -> R:
        """Run a handler to its end, in the context of the calling thread.

        It is cancelled once, when all clients of its batch have left or its time is up.

        Raises:
            BaseException: what the handler raised.
        """
        loop = self._started.result()
        running = asyncio.run_coroutine_threadsafe(_supervise(loop, call, departures), loop)
        try:
            return running.result()
        except CancelledError:
            raise asyncio.CancelledError from None
        except BaseException:
            running.cancel()  # if it was this thread that was interrupted
            raise

    def _run_loop(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.set_task_factory(create_task)
            self._started.set_result(loop)
            while not self._closing.is_set():
                # SystemExit and KeyboardInterrupt leave the loop from whichever task raises them.
                with suppress(BaseException):
                    runner.run(self._until_closing())

    async def _until_closing(self) -> None:
        await self._closing.wait()


async def _supervise(
    loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, R], departures: Departures | None
) -> R:
    started = Tasks()
    started_tasks.set(started)
    task = loop.create_task(_guard(call))
    watch = None if departures is None else Watch(loop, task, departures)
    try:
        return await task
    except BaseException:
        await end_tasks(started)
        raise
    finally:
        if watch is not None:
            watch.end()


async def _guard(call: Coroutine[Any, Any, R]) -> R:
    # In this thread, which a fork of the handler continues.
    with WorkerCode():
        return await call
