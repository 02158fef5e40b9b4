"""Executes batches with a coroutine function, each in its own task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

from uncork_dispatcher.errors import DispatchError
from uncork_dispatcher.jobs import BatchResult, OnBatchEnd, Submission
from uncork_dispatcher.requests.batch import Batch

P = TypeVar("P")
R = TypeVar("R")


def is_being_cancelled() -> bool:
    """Return True if the current task was cancelled, or there is none.

    A reference to the task in the calling frame would be a cycle: a cancelled task keeps its exception.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class TaskRunner(Generic[P, R]):
    """A runner that awaits ``execute(batch)``; cancels it if the batch is abandoned or its callers leave.

    Args:
        context_of: returns the context to run a batch in, as a copy; the current context by default.
    """

    def __init__(
        self,
        execute: Callable[[Batch[Submission[P, R]]], Awaitable[BatchResult[R]]],
        *,
        context_of: Callable[[Batch[Submission[P, R]]], Context] = lambda batch: copy_context(),
    ) -> None:
        self._execute = execute
        self._context_of = context_of
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unwanted: set[int] = set()
        """The batches that were cancelled because all their callers have left."""

    def start(self, batch: Batch[Submission[P, R]], ended: OnBatchEnd[R]) -> None:
        loop = asyncio.get_running_loop()
        task = self._context_of(batch).run(lambda: loop.create_task(self._run(batch, ended)))
        self._tasks[batch.number] = task
        task.add_done_callback(lambda _: self._done(batch, ended))

    def abandon(self, batch: int, worker: int) -> None:
        """Cancel the task of a batch, if it still runs; ignore its result."""
        task = self._tasks.get(batch)
        if task is not None:
            task.cancel()

    def cancel(self, batch: Batch[Submission[P, R]], requests: Collection[Submission[P, R]]) -> None:
        """Cancel the task of a batch if all its callers have left."""
        task = self._tasks.get(batch.number)
        if task is not None and all(request.waiter is None for request in batch.requests):
            self._unwanted.add(batch.number)
            task.cancel()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, batch: Batch[Submission[P, R]], ended: OnBatchEnd[R]) -> None:
        outcome: BatchResult[R] | Exception
        try:
            outcome = await self._execute(batch)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            # The cancellation came from something that the function awaited, not from us.
            outcome = DispatchError("the batch was cancelled from within")
        except Exception as error:
            outcome = error
        except (SystemExit, KeyboardInterrupt) as error:
            ended(DispatchError(f"the batch function raised {error!r}"))
            raise
        try:
            if batch.number not in self._unwanted:
                ended(outcome)
        finally:
            del outcome  # else the traceback of an exception refers to it, and keeps the batch

    def _done(self, batch: Batch[Submission[P, R]], ended: OnBatchEnd[R]) -> None:
        """Forget a task. A cancelled task may have ended before its first step, so its batch ends here."""
        self._tasks.pop(batch.number, None)
        if batch.number in self._unwanted:
            self._unwanted.discard(batch.number)
            nothing: list[Any] = [None] * len(batch.requests)  # nobody receives it
            ended(BatchResult(nothing, "cancelled"))
