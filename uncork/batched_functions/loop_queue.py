"""The queue of a batched function in one event loop."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from uncork.batched_functions.batch_run import BatchRun, Failed, Outcome, Result, for_callers, result_of
from uncork.batched_functions.definition import Definition, Parameters
from uncork.batched_functions.tally import Tally
from uncork_dispatcher import (
    ApiSample,
    AsyncDispatcher,
    Batch,
    BatchResult,
    BatchStatus,
    Observer,
    Submission,
    TaskRunner,
    payloads_of,
)
from uncork_dispatcher.jobs import results_fault
from uncork_dispatcher.tasks import is_being_cancelled
from uncork_dispatcher.wording import exact
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.costs import Extent

log = logging.getLogger("uncork.batched")


class Item(NamedTuple):
    """The arguments of a call, and a copy of its caller's context.

    For a method, ``function`` is bound to the instance, and keeps it alive.
    """

    function: Callable[..., Any]
    values: tuple[Any, ...]
    context: Context


class _Running:
    """A call of a function, known to its code and to the tasks that it starts until it ends."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function: Callable[..., Any] | None = function

    def __enter__(self) -> None:
        _running.set(self)

    def __exit__(self, *error: object) -> None:
        self.function = None


_running: ContextVar[_Running | None] = ContextVar("uncork_batched", default=None)
"""The last call of a batched function in this context."""


class LoopQueue(Observer):
    """The calls of a function in one event loop: queues, batches, and what has been learned of them.

    Create it inside the running loop.

    Args:
        threads: run the function; None for an async function.

    Attributes:
        limit: the size of batches that fits into memory.
        running: the number of items in running batches.
    """

    def __init__(
        self,
        definition: Definition,
        parameters: Parameters,
        threads: Threads | None,
        tallies: Sequence[Tally],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._definition = definition
        self.rules = definition.rules
        self._parameters = parameters
        self._threads = threads
        self._tallies = tallies
        self.limit = SizeLimit()
        self.running = 0
        self._most = math.inf
        """The limit that the dispatcher has."""
        self._begun: set[int] = set()
        """The numbers of the batches whose tasks have begun and not ended."""
        self._callers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._numbers = itertools.count(1)
        # Batches have slots in the dispatcher; the warm-up has not.
        self._free = asyncio.Semaphore(definition.concurrency)
        self._dispatcher: AsyncDispatcher[Item, Result] = AsyncDispatcher(
            # Else a batch would have the variables of the one before it, or of the first call ever.
            TaskRunner(self._run, context_of=lambda batch: batch.requests[0].payload.context),
            observers=[*tallies, self],
        )
        self._dispatcher.set_api(definition.rules)
        for slot in range(definition.concurrency):
            self._dispatcher.worker_ready(slot)

    def close(self) -> None:
        """Stop the timer, which the loop refers to; there are no callers any more."""
        self._dispatcher.close()

    def sample(self) -> ApiSample:
        """Return totals and estimates; any thread may call this."""
        return self._dispatcher.sample(self.rules.name)

    async def call(self, item: Item) -> Any:
        """Run the function with an item, in a batch, and return its result.

        Raises:
            Exception: the item's.
            RuntimeError: if the function calls itself.
        """
        self._refuse_itself(item.function)
        definition = self._definition
        answer = await self._dispatcher.call(
            definition.rules.name,
            item,
            cost=definition.cost_of(item.values),
            group=definition.group_of(item.values),
            bulk=definition.is_bulk(item.values),
            source=self._caller(),
        )
        result = answer.result
        if not isinstance(result, Failed):
            return result
        try:
            raise result.error
        finally:
            del answer, result  # else the traceback refers to the exception

    def _refuse_itself(self, function: Callable[..., Any]) -> None:
        """Raise RuntimeError in a call of the function, which would wait for its own end."""
        inside = _running.get()
        if inside is not None and inside.function == function:
            raise RuntimeError(
                f"{self.rules.name} calls itself and would wait for its own end; call a function without "
                "@batched instead"
            )

    def _caller(self) -> int | None:
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

    # The dispatcher's observer

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        """Expect the slot of a batch past its timeout: calls that its end allows wait for it."""
        if status != "timed_out":
            return
        if batch.number in self._begun:
            self._dispatcher.worker_expected(batch.worker)
        else:  # its task was cancelled before its first step, or has ended: nothing else frees the slot
            self._dispatcher.worker_ready(batch.worker, place=batch.worker)
            self.set_limit()

    async def _run(self, batch: Batch[Submission[Item, Result]]) -> BatchResult[Result]:
        items, limit = payloads_of(batch), self.limit
        if limit.pads is not batch.pads:
            limit.count_in(pads=batch.pads, known=None)
        run = BatchRun(
            lambda part: self.try_items([items[at] for at in part]),
            rules=self.rules,
            extents=[Extent(1, one.cost or 0.0, one.cost or 0.0) for one in batch.requests],
            pads=batch.pads,
            limit=limit,
            clock=self._loop.time,
        )
        self.running += len(items)
        self._begun.add(batch.number)
        try:
            async with self._free:
                return await run.run()
        finally:
            self.running -= len(items)
            self._begun.discard(batch.number)
            for tally in self._tallies if run.memory_failures else ():
                tally.ran_out_of_memory(run.memory_failures)
            if not self._loop.is_closed():
                # The dispatcher gave up the slot of a call that ran past its timeout; the call ends only now.
                self._dispatcher.worker_ready(batch.worker, place=batch.worker)
                if limit.most != self._most or is_being_cancelled():
                    self.set_limit()

    async def try_alone(self, items: Sequence[Item]) -> tuple[Outcome, float]:
        """Call the function with items outside of a batch; return the outcome and its seconds.

        Raises:
            RuntimeError: if the function calls this.
        """
        self._refuse_itself(items[0].function)
        async with self._free:
            began = self._loop.time()
            return await self.try_items(items), self._loop.time() - began

    def learn(self, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (size, seconds) of calls outside of batches."""
        self._dispatcher.profile(self.rules.name, 0, chunks)

    def set_limit(self) -> None:
        """Limit batches to what fits into memory."""
        name, most = self.rules.name, self.limit.most
        for slot in range(self._definition.concurrency):
            self._dispatcher.limit_batches(slot, name, most)
        if most < self._most:
            unit = "items" if self._definition.cost is None else "units of cost"
            log.warning(
                "%s: larger batches do not fit into memory; batches have at most %s %s",
                *(name, exact(most), unit),
            )
        self._most = most

    async def try_items(self, items: Sequence[Item]) -> Outcome:
        """Call the function with items; return one result per item, or the exception of all of them."""
        try:
            results = await self._call(items[0].function, [item.values for item in items])
            fault = results_fault(results, len(items))
            return fault or [result_of(result) for result in results]
        except (SystemExit, KeyboardInterrupt):
            raise  # they end the program
        except BaseException as error:
            # Cancelled at the timeout, or closed with its loop: nobody waits for a result.
            if _is_closing(error) or is_being_cancelled():
                raise
            return for_callers(error)

    async def _call(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Any:
        if self._threads is not None:
            return await self._threads.run(lambda: self._call_in_thread(function, calls))
        with _Running(function):
            return await self._parameters.call(function, calls)

    def _call_in_thread(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Any:
        with _Running(function):
            results = self._parameters.call(function, calls)
        if inspect.iscoroutine(results):
            results.close()
            raise TypeError(
                f"the plain function {self.rules.name} returned a coroutine; decorate an async function with "
                "@batched directly"
            )
        return results


def _is_closing(error: BaseException) -> bool:
    """Return True if the coroutine is closed after its loop has ended."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return isinstance(error, GeneratorExit)
    return False


class Threads:
    """Run the calls of a plain function, of all event loops, each in one of ``count`` threads."""

    def __init__(self, name: str, count: int) -> None:
        self._new = partial(ThreadPoolExecutor, count, thread_name_prefix=name)
        self._executor, self._process = self._new(), os.getpid()

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run a call and return its result, or raise its exception.

        A call that has begun cannot be stopped: if the task is cancelled, this ends when the call does.
        """
        if self._process != os.getpid():  # a forked process has no threads
            self._executor, self._process = self._new(), os.getpid()
        outcome: list[Any] = []
        submitted = self._executor.submit(_run, call, outcome)
        ended = asyncio.wrap_future(submitted)
        is_cancelled = False
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                is_cancelled = True
                submitted.cancel()  # if it has not begun
        try:
            if is_cancelled:
                raise asyncio.CancelledError
            result, error = outcome
            if error is None:
                return result
            raise error
        finally:
            # Else the traceback refers to the exception.
            outcome.clear()
            error = None


def _run(call: Callable[[], Any], outcome: list[Any]) -> None:
    """Append the result of a call and its exception. A future cannot carry every exception.

    Nor may this return it: the traceback would refer to it by the frame of the caller.
    """
    try:
        outcome += call(), None
    except BaseException as error:
        outcome += None, error
