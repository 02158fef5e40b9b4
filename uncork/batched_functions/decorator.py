"""The decorator that gives any asyncio program the dispatcher, without HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Any, Protocol, SupportsFloat, TypeVar, overload

from uncork.batched_functions.definition import Definition, name_of
from uncork.batched_functions.function import Batched
from uncork_dispatcher import ApiRules, make_policy
from uncork_workers.wire.schema import ApiDescription, ApiSettings, first_goal
from uncork_workers.wire.values import DefinitionError, is_count

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Results = Awaitable[Collection[R]] | Collection[R]
"""What an async or a plain function returns."""

_MOST_CONCURRENT = 10_000
# As for an API with a cost: a queue must fill batches.
_QUEUED_BATCHES = 20


class Decorator(Protocol):
    """Makes a batched function; type checkers know up to three positional arguments of its calls."""

    @overload
    def __call__(self, function: _WithDefault[R], /) -> Batched[..., R]: ...
    @overload
    def __call__(self, function: _WithSecondDefault[R], /) -> Batched[..., R]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], Results[R]], /) -> Batched[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[list[A], list[B]], Results[R]], /) -> Batched[[A, B], R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A], list[B], list[C]], Results[R]], /
    ) -> Batched[[A, B, C], R]: ...
    @overload
    def __call__(self, function: Callable[[Any, list[A]], Results[R]], /) -> Batched[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[Any, list[A], list[B]], Results[R]], /) -> Batched[[A, B], R]: ...
    @overload
    def __call__(self, function: classmethod[Any, ..., Results[R]], /) -> Batched[..., R]: ...
    @overload  # for mypy, any function may have a default; this one has not
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[..., Results[R]], /
    ) -> Batched[..., R]: ...


class _WithDefault(Protocol[R_co]):
    def __call__(self, first: Any, second: Any = ..., /) -> Results[R_co]: ...


class _WithSecondDefault(Protocol[R_co]):
    def __call__(self, first: Any, second: Any, third: Any = ..., /) -> Results[R_co]: ...


def batched(
    *misplaced: object,
    mb_max_latency: float | None = None,
    classes: Mapping[str, float | None] | None = None,
    class_of: Callable[..., str] | None = None,
    mb_max_batch_size: int = 1000,
    policy: str = "cork",
    timeout: float = 60,
    concurrency: int = 1,
    idempotent: bool = True,
    cost: Callable[..., SupportsFloat] | None = None,
    group_by: Callable[..., Hashable] | None = None,
    warmup: Any = None,
) -> Decorator:
    """Turn a function of lists into an async function of one item; concurrent calls share batches.

    ::

        @batched(mb_max_latency=100)
        async def embed(texts: list[str]) -> list[Vector]: ...

        vector = await embed("hello")

    The function may be ``async`` or plain, and a method. It gets a list for each of its parameters, which has
    the argument of each call; a default is the argument of a call without it. A plain function runs in a
    thread of its own. A method has queues of its own for each instance, which they do not keep alive. An
    async function has the context variables of one of its callers.

    Args:
        mb_max_latency: latency goal in milliseconds, 300 by default.
        classes: two classes of items with goals of their own, instead of ``mb_max_latency``, as for ``@api``.
        class_of: returns the name of an item's class; required with ``classes``. Like ``cost`` and
            ``group_by``, it gets the arguments of a call in the order of the parameters, without ``self``.
        mb_max_batch_size: most items in one call of the function; with ``cost``, the most cost.
        policy: when to release a batch, as for ``@api``.
        timeout: seconds after which the callers of a batch get an error. An async function is cancelled. A
            plain one cannot be stopped: further batches wait until it has returned.
        concurrency: batches that may run at the same time; of a plain function, each in a thread of its own.
        idempotent: whether the function may be called again with items of a call that failed, in smaller
            lists, so that only the callers of the items at fault get an error, and that items which run out
            of memory together get results.
        cost: returns the cost of an item, such as its length, for items whose execution times differ much: a
            positive number. Uncork learns whether the function pads items to the longest.
        group_by: returns the group of an item, a hashable value; all items in a call of the function are of
            one group. Equal values of different types are different groups.
        warmup: an example for :meth:`Batched.warm_up`: an item or, if the function has several parameters, a
            tuple or a dict of arguments.

    A call raises :class:`RequestShed` when its goal cannot be met, :class:`BatchTimedOut` after the timeout,
    :class:`WrongResultCount` when the function returns another number of results than it got items, and
    otherwise the exception of the function. An exception that the function returns as the result of an item
    is raised by the call with that item: return exceptions of a client's data only if callers may raise them.
    A ``BaseException`` that is no ``Exception``, such as a cancellation inside the function, becomes a
    :class:`DispatchError`. Each event loop has its own queues. A function that calls itself gets
    ``RuntimeError``: it would wait for its own end.

    Raises:
        DefinitionError: if an argument is not accepted.
        TypeError: if the function has no parameter, ``*args`` or ``**kwargs``, or is a generator; without
            parentheses.
    """
    if misplaced:
        raise TypeError("write @batched() with parentheses, and its arguments by keyword")
    if not is_count(concurrency, most=_MOST_CONCURRENT):
        raise DefinitionError(
            f"@batched: concurrency must be an integer from 1 to {_MOST_CONCURRENT}, got {concurrency!r}"
        )
    for name, argument in (("cost", cost), ("group_by", group_by)):
        if argument is not None and not callable(argument):
            raise DefinitionError(f"@batched: {name} must be a function of an item, got {argument!r}")
    for name, callback in (("cost", cost), ("group_by", group_by), ("class_of", class_of)):
        if _is_async(callback):
            raise DefinitionError(f"@batched: {name} must be a plain function, not async, got {callback!r}")
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

    def decorate(given: Callable[..., Any] | classmethod[Any, ..., Any]) -> Batched[..., Any]:
        of_class = isinstance(given, classmethod)
        function = given.__func__ if isinstance(given, classmethod) else given
        _check_function(function)
        name = name_of(function)
        description = ApiDescription(
            name=name,
            route="/",
            input={},
            settings=settings,
            classes=None if classes is None else dict(classes),
        )
        description.check()
        try:
            make_policy(policy, limit_rows=mb_max_batch_size)
        except ValueError as error:
            raise DefinitionError(f"API {name!r}: policy: {error}") from None
        rules = ApiRules(
            name=name,
            goal_s=settings.mb_max_latency / 1000,
            bulk_goal_s=description.bulk_goal_s,
            max_batch_rows=mb_max_batch_size,
            max_queue_rows=max(ApiRules(name=name).max_queue_rows, _QUEUED_BATCHES * mb_max_batch_size),
            policy=policy,
            timeout_s=timeout,
            idempotent=idempotent,
        )
        definition = Definition(
            function,
            rules,
            label=f"{getattr(function, '__module__', None) or '__main__'}.{name}",
            is_async=_is_async(function),
            of_class=of_class,
            concurrency=concurrency,
            cost=cost,
            group_by=group_by,
            class_of=class_of,
            class_names=description.class_names,
            warmup=warmup,
        )
        _ = definition.parameters  # checks them
        return Batched(definition)

    return decorate


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _check_function(function: object) -> None:
    if isinstance(function, staticmethod | property):
        raise TypeError(f"write @{type(function).__name__} above @batched(), not below")
    if not callable(function):
        raise TypeError(f"@batched must decorate a function, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"@batched must decorate a function that returns a list, got {function!r}")
