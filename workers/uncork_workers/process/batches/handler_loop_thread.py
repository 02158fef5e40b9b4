"""The event loop of the async handlers of a service that runs several batches at once."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar, cast

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
        self._is_closing = False
        self._thread = threading.Thread(target=self._run_loop, name="uncork handlers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        loop = self._started.result()
        self._is_closing = True
        loop.call_soon_threadsafe(loop.stop)
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
            result, error = running.result()
        except BaseException:
            running.cancel()  # if it was this thread that was interrupted
            raise
        if error is not None:
            raise error
        return cast(R, result)

    def _run_loop(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.set_task_factory(create_task)
            self._started.set_result(loop)
            while not self._is_closing:
                # SystemExit and KeyboardInterrupt leave the loop from whichever task raises them.
                with suppress(BaseException):
                    loop.run_forever()


async def _supervise(
    loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, R], departures: Departures | None
) -> tuple[R | None, BaseException | None]:
    """Return the handler's result, or its exception. A future that raised it could lose its traceback."""
    started = Tasks()
    started_tasks.set(started)
    task = loop.create_task(_guard(call))
    watch = None if departures is None else Watch(loop, task, departures)
    try:
        return await task, None
    except BaseException as error:
        await end_tasks(started)
        return None, error
    finally:
        if watch is not None:
            watch.end()


async def _guard(call: Coroutine[Any, Any, R]) -> R:
    # In this thread, which a fork of the handler continues.
    with WorkerCode():
        return await call
