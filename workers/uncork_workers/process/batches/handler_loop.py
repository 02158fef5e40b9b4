"""The event loop of async handlers: in the main thread, or in one of its own for several batches at once."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar, cast
from weakref import WeakSet

from uncork_workers.plural import plural
from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.children import Stopped, WorkerCode

log = logging.getLogger("uncork.worker")

R = TypeVar("R")
Tasks = WeakSet[asyncio.Task[Any]]

# How long the tasks of a failed call may take to end after they were cancelled.
_MOST_SECONDS = 1.0
# Of a batch past its timeout, which the gateway gives a second to end.
_MOST_AFTER_TIMEOUT_S = 0.5
# Shorter calls are not worth watching for departures.
_UNWATCHED_S = 0.001
# How often to look while another thread reads from the gateway.
_LOOK_EVERY_S = 0.01

started_tasks: ContextVar[Tasks] = ContextVar("uncork_started")
"""The tasks that the current call of a handler has started."""


class HandlerLoop:
    """One event loop for all batches, so that handlers can keep connections and tasks between them.

    A call that fails leaves nothing behind: the tasks that it has started are cancelled. So they cannot raise
    into a later batch, whose requests they do not concern.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._has_factory = False

    def close(self) -> None:
        self._runner.close()

    def run(self, call: Coroutine[Any, Any, R], departures: Departures | None = None) -> R:
        """Run a handler to its end, and cancel it once when all clients of its batch have left.

        Raises:
            BaseException: what the handler raised.
        """
        loop = self._runner.get_loop()
        if not self._has_factory:
            loop.set_task_factory(create_task)
            self._has_factory = True
        context, started = copy_context(), Tasks()
        context.run(started_tasks.set, started)
        task = loop.create_task(call, context=context)
        watch = None if departures is None else Watch(loop, task, departures)
        try:
            return self._run_until_done(task)
        except Stopped:
            raise
        except BaseException:
            self._end(started)
            raise
        finally:
            if watch is not None:
                watch.end()

    def _run_until_done(self, task: asyncio.Task[R]) -> R:
        loop = self._runner.get_loop()
        while True:
            try:
                return loop.run_until_complete(task)
            except Stopped:
                raise
            except BaseException:
                # SystemExit and KeyboardInterrupt leave the loop from whichever task raises them. Code that
                # awaits that task gets them too, so go on: it may not belong to this call.
                if task.done() or loop.is_closed():
                    raise

    def _end(self, started: Tasks) -> None:
        if not all(task.done() for task in started):
            self._run_until_done(self._runner.get_loop().create_task(end_tasks(started, _MOST_SECONDS)))


async def end_tasks(started: Tasks, most_s: float) -> None:
    """Cancel the tasks that a failed call has started, and wait for them, for ``most_s`` at most."""
    tasks = [task for task in started if not task.done() and task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    running: set[asyncio.Task[Any]] = set()
    if tasks:
        _, running = await asyncio.wait(tasks, timeout=most_s)
    if running:
        log.warning(
            "%s of a failed handler call still run %.2g s after they were cancelled: %s",
            *(plural(len(running), "task"), most_s, ", ".join(map(repr, running))),
        )


class Watch:
    """Cancels a task when all clients of its batch have left, and when its time is up."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], departures: Departures
    ) -> None:
        self._loop = loop
        self._task = task
        self._departures = departures
        self._timer: asyncio.TimerHandle | None = loop.call_later(_UNWATCHED_S, self._begin)
        self._timeout: asyncio.TimerHandle | None = None
        if (left_s := departures.due - time.monotonic()) < math.inf:
            self._timeout = loop.call_later(max(0.0, left_s), self._time_out)

    def end(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        if self._timer is not None:
            self._timer.cancel()
        else:
            self._loop.remove_reader(self._departures)

    def _begin(self) -> None:
        if self._departures.fileno() >= 0:
            self._timer = None
            self._loop.add_reader(self._departures, self._look)
        self._look()

    def _look(self) -> None:
        is_final = self._departures.is_final()
        if self._timer is not None:
            if not is_final:
                self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        elif is_final:
            self._loop.remove_reader(self._departures)
        if self._departures.cancelled:
            self._task.cancel()

    def _time_out(self) -> None:
        self.end()  # clients that leave now must not interrupt what the handler does to end
        self._departures.timed_out = True
        self._task.cancel()


def create_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, R] | Generator[Any, None, R],
    **options: Any,
) -> asyncio.Task[R]:
    """Create a task and note it with the handler call that starts it, directly or through other tasks."""
    task: asyncio.Task[R] = asyncio.Task(coroutine, loop=loop, **options)
    started = started_tasks.get(None)
    if started is not None:
        started.add(task)
    return task


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
        most_s = _MOST_SECONDS
        if departures is not None:
            ends = departures.due + _MOST_AFTER_TIMEOUT_S
            most_s = max(0.0, min(most_s, ends - time.monotonic()))
        await end_tasks(started, most_s)
        return None, error
    finally:
        if watch is not None:
            watch.end()


async def _guard(call: Coroutine[Any, Any, R]) -> R:
    # In this thread, which a fork of the handler continues.
    with WorkerCode():
        return await call
