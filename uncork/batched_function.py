"""The dispatcher as a decorator for any asyncio program, without HTTP."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from uncork_dispatcher import (
    ApiRules,
    AsyncDispatcher,
    Batch,
    BatchResult,
    DispatchError,
    Submission,
    TaskRunner,
    payloads_of,
)
from uncork_dispatcher.jobs import results_fault
from uncork_dispatcher.tasks import is_being_cancelled
from uncork_workers.process.batches.bisection import Bisection
from uncork_workers.wire.schema import ApiDescription, ApiSettings, DefinitionError, first_goal, is_count

T = TypeVar("T")
R = TypeVar("R")

# The rest of the timeout is for the part that runs when the search for the items at fault ends.
_SHARE_OF_TIMEOUT = 0.9
_MOST_CONCURRENT = 10_000


def batched(
    *misplaced: object,
    mb_max_latency: float | None = None,
    classes: Mapping[str, float | None] | None = None,
    class_of: Callable[[Any], str] | None = None,
    mb_max_batch_size: int = 1000,
    policy: str = "cork",
    timeout: float = 60,
    concurrency: int = 1,
    idempotent: bool = True,
    group_by: Callable[[Any], Hashable] | None = None,
) -> Callable[[Callable[[list[T]], Awaitable[Sequence[R]]]], Callable[[T], Awaitable[R]]]:
    """Turn an async function of a list into an async function of one item; concurrent calls share batches.

    ::

        @batched(mb_max_latency=100)
        async def embed(texts: list[str]) -> list[Vector]: ...

        vector = await embed("hello")

    Args:
        mb_max_latency: latency goal in milliseconds, 300 by default.
        classes: two classes of items with goals of their own, instead of ``mb_max_latency``, as for ``@api``.
        class_of: returns the name of an item's class; required with ``classes``.
        mb_max_batch_size: most items in one call of the function.
        policy: when to release a batch, as for ``@api``.
        timeout: seconds that a batch may take before it is cancelled.
        concurrency: batches that may run at the same time.
        idempotent: whether the function may be called again with items of a call that failed, in smaller
            lists, so that only the callers of the items at fault get an error.
        group_by: returns the group of an item, a hashable value; all items in a call of the function are of
            one group. Equal values of different types are different groups.

    A call raises :class:`RequestShed` when its goal cannot be met, :class:`BatchTimedOut` after the timeout,
    :class:`WrongResultCount` when the function returns another number of results than it got items, and
    otherwise the exception of the function. An exception that the function returns as the result of an item
    is raised by the call with that item. A ``BaseException`` that is no ``Exception``, such as a
    cancellation inside the function, becomes a :class:`DispatchError`. Each event loop has its own queues.

    Raises:
        DefinitionError: if an argument is not accepted.
        TypeError: if the function is not ``async def``, or does not take one list; without parentheses.
    """
    if misplaced:
        raise TypeError("write @batched() with parentheses, and its arguments by keyword")
    if not is_count(concurrency, most=_MOST_CONCURRENT):
        raise DefinitionError(
            f"@batched: concurrency must be an integer from 1 to {_MOST_CONCURRENT}, got {concurrency!r}"
        )
    if group_by is not None and not callable(group_by):
        raise DefinitionError(f"@batched: group_by must be a function of an item, got {group_by!r}")
    if (classes is None) != (class_of is None) or (class_of is not None and not callable(class_of)):
        raise DefinitionError(
            "@batched: classes requires class_of, a function that returns the class of an item, "
            f"got {class_of!r}"
        )
    settings = ApiSettings(
        mb_max_latency=first_goal("@batched", mb_max_latency, classes),
        mb_max_batch_size=mb_max_batch_size,
        policy=policy,
        timeout=timeout,
        idempotent=idempotent,
    )

    def decorate(function: Callable[[list[T]], Awaitable[Sequence[R]]]) -> Callable[[T], Awaitable[R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"@batched must decorate an async function, got {function!r}")
        _check_parameters(function)
        name = function.__qualname__
        description = ApiDescription(
            name=name,
            route="/",
            input={},
            settings=settings,
            classes=None if classes is None else dict(classes),
        )
        description.check()
        rules = ApiRules(
            name=name,
            goal_s=settings.mb_max_latency / 1000,
            bulk_goal_s=description.bulk_goal_s,
            max_batch_rows=mb_max_batch_size,
            policy=policy,
            timeout_s=timeout,
            idempotent=idempotent,
        )
        mine: _Batched[T, R] = _Batched(function, rules, concurrency)

        @functools.wraps(function)
        async def call(item: T) -> R:
            group = None if group_by is None else _group_of(group_by(item))
            bulk = class_of is not None and _is_bulk(class_of(item), description.class_names)
            answer = await mine.dispatcher().call(
                rules.name, item, source=mine.caller(), group=group, bulk=bulk
            )
            result = answer.result
            if not isinstance(result, _Failed):
                return result
            try:
                raise result.error
            finally:
                del answer, result  # else the traceback refers to the exception

        return call

    return decorate


def _group_of(value: Hashable) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"@batched: group_by must return a hashable value, got {value!r}") from None
    return type(value), value


def _is_bulk(name: str, names: tuple[str, str] | None) -> bool:
    assert names is not None
    if name not in names:
        raise ValueError(f"@batched: class_of must return {' or '.join(map(repr, names))}, got {name!r}")
    return name == names[1]


def _check_parameters(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    try:
        inspect.signature(function).bind([])
    except TypeError:
        raise TypeError(
            f"@batched: {function.__qualname__} must take one argument, the list of items, got "
            f"({', '.join(parameters)}); for a method, decorate a function that calls it"
        ) from None


class _Failed(NamedTuple):
    """The exception that a call raises in place of a result."""

    error: Exception


class _Batched(Generic[T, R]):
    """One decorated function and its dispatcher in each event loop."""

    def __init__(
        self, function: Callable[[list[T]], Awaitable[Sequence[R]]], rules: ApiRules, concurrency: int
    ) -> None:
        self._function = function
        self._rules = rules
        self._concurrency = concurrency
        self._dispatchers: dict[asyncio.AbstractEventLoop, AsyncDispatcher[T, R | _Failed]] = {}
        self._callers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._numbers = itertools.count(1)

    def dispatcher(self) -> AsyncDispatcher[T, R | _Failed]:
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

    async def _run(self, batch: Batch[Submission[T, R | _Failed]]) -> BatchResult[R | _Failed]:
        clock, items = asyncio.get_running_loop().time, payloads_of(batch)
        began = clock()
        try:
            results = await self._call(items)
            if not isinstance(results, Exception):
                return BatchResult(results)
            if not self._rules.idempotent or len(items) == 1:
                try:
                    raise results
                finally:
                    del results  # as above
            # At the timeout no caller gets a result. A part can take as long as the failed call.
            ends = began + _SHARE_OF_TIMEOUT * self._rules.timeout_s - 2 * (clock() - began)
            return BatchResult(await self._search(items, results, lambda: clock() < ends), "failed")
        finally:
            # The dispatcher gave up the slot of a call that ran past its timeout; the call ends only now.
            self.dispatcher().worker_ready(batch.worker)

    async def _search(
        self, items: list[T], error: Exception, has_time: Callable[[], bool]
    ) -> list[R | _Failed]:
        """Call the function with smaller lists, after a call with all items raised ``error``."""
        search: Bisection[R | _Failed] = Bisection(range(len(items)))
        while search.part is not None and has_time():
            search.ran(await self._call([items[at] for at in search.part]))
        results: dict[int, R | _Failed] = dict.fromkeys(range(len(items)), _Failed(error))
        results |= {at: _Failed(_for_callers(error)) for at, error in search.culprits.items()}
        return [*(results | search.results).values()]

    async def _call(self, items: list[T]) -> list[R | _Failed] | Exception:
        """Call the function; return one result or exception per item, or the exception of all of them."""
        try:
            results = await self._function(items)
            fault = results_fault(results, len(items))
            return fault or [_result(result) for result in results]
        except (SystemExit, KeyboardInterrupt):
            raise  # they end the program
        except BaseException as error:
            # Cancelled at the timeout, or closed with its loop: nobody waits for a result.
            if _is_closing(error) or is_being_cancelled():
                raise
            return _for_callers(error)


def _is_closing(error: BaseException) -> bool:
    """Return whether the coroutine is closed after its loop has ended."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return isinstance(error, GeneratorExit)
    return False


def _result(result: R) -> R | _Failed:
    return _Failed(_for_callers(result)) if isinstance(result, BaseException) else result


def _for_callers(error: BaseException) -> Exception:
    """Return an exception that a caller can be given: no cancellation."""
    if isinstance(error, Exception):
        return error
    what = "was cancelled from within" if isinstance(error, asyncio.CancelledError) else f"raised {error!r}"
    failed = DispatchError(f"the batch function {what}")
    failed.__cause__ = error
    return failed
