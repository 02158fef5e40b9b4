"""The dispatcher as a decorator for any asyncio program, without HTTP."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import DispatchError, WorkerLost
from uncork_dispatcher.jobs import BatchResult, Job
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.tasks import TaskRunner

T = TypeVar("T")
R = TypeVar("R")


def batched(
    *,
    mb_max_latency: float = 300,
    mb_max_batch_size: int = 1000,
    policy: str = "cork",
    timeout: float = 60,
    concurrency: int = 1,
) -> Callable[[Callable[[list[T]], Awaitable[Sequence[R]]]], Callable[[T], Awaitable[R]]]:
    """Turn an async function of a list into an async function of one item; concurrent calls share batches.

    ::

        @batched(mb_max_latency=100)
        async def embed(texts: list[str]) -> list[Vector]: ...

        vector = await embed("hello")

    Args:
        mb_max_latency: latency goal in milliseconds.
        mb_max_batch_size: most items in one call of the function.
        policy: when to release a batch, as for ``@api``.
        timeout: seconds that a call of the function may take before it is cancelled.
        concurrency: calls of the function that may run at the same time.

    A call raises :class:`RequestShed` when its goal cannot be met, :class:`BatchTimedOut` after the timeout,
    :class:`WrongResultCount` when the function returns another number of results than it got items, and
    otherwise the exception of the function. Each event loop has its own queues.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if the function is not ``async def``.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, got {concurrency}")

    def decorate(function: Callable[[list[T]], Awaitable[Sequence[R]]]) -> Callable[[T], Awaitable[R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"@batched must decorate an async function, got {function!r}")
        rules = ApiRules(
            name=function.__qualname__,
            goal_s=mb_max_latency / 1000,
            max_batch_rows=mb_max_batch_size,
            policy=policy,
            timeout_s=timeout,
        )
        mine: _Batched[T, R] = _Batched(function, rules, concurrency)

        @functools.wraps(function)
        async def call(item: T) -> R:
            answer = await mine.dispatcher().call(rules.name, item, source=mine.caller())
            return answer.result

        return call

    return decorate


class _Batched(Generic[T, R]):
    """One decorated function and its dispatcher in each event loop."""

    def __init__(
        self, function: Callable[[list[T]], Awaitable[Sequence[R]]], rules: ApiRules, concurrency: int
    ) -> None:
        self._function = function
        self._rules = rules
        self._concurrency = concurrency
        self._dispatchers: dict[asyncio.AbstractEventLoop, AsyncDispatcher[T, R]] = {}
        self._callers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._numbers = itertools.count(1)

    def dispatcher(self) -> AsyncDispatcher[T, R]:
        loop = asyncio.get_running_loop()
        dispatcher = self._dispatchers.get(loop)
        if dispatcher is None:
            for closed in [known for known in self._dispatchers if known.is_closed()]:
                del self._dispatchers[closed]
            dispatcher = self._dispatchers[loop] = AsyncDispatcher(TaskRunner(self._run))
            dispatcher.set_api(self._rules)
            for slot in range(self._concurrency):
                dispatcher.worker_ready(slot)
        return dispatcher

    def caller(self) -> int | None:
        """Return a number for the current task: a task that calls in a loop is a returning client.

        Not its ``id()``: a new task may get that of one that has ended.
        """
        task = asyncio.current_task()
        if task is None:
            return None
        number = self._callers.get(task)
        if number is None:
            number = self._callers[task] = next(self._numbers)
        return number

    async def _run(self, job: Job[T]) -> BatchResult[R]:
        try:
            return BatchResult(await self._function(job.payloads))
        except WorkerLost as error:
            # The function itself uses a dispatcher, which lost a worker. The slot here is intact.
            raise DispatchError(str(error)) from error
        finally:
            # The dispatcher gave up the slot of a call that ran past its timeout; the call ends only now.
            self.dispatcher().worker_ready(job.start.worker)
