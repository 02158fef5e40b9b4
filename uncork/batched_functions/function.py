"""What ``@batched`` makes of a function: it is called with one item, and can be a method."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from contextvars import copy_context
from threading import Lock
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from uncork.batched_functions.batch_run import Failed
from uncork.batched_functions.definition import Definition
from uncork.batched_functions.loop_queue import Item, LoopQueue
from uncork.batched_functions.queues import BatchedStats, OfInstances, Queues
from uncork_workers.process.batches.failures import is_out_of_memory
from uncork_workers.process.batches.size_limit import RUNS_PER_SIZE, SizeLimit, WarmUpSizes, doubling
from uncork_workers.wire.values import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")

WARM_UP_S = 30.0


class Batched(Generic[P, R]):
    """A function of lists that is called with one item; concurrent calls share batches.

    As a method, it has queues for each instance, which they do not keep alive.
    """

    def __init__(
        self, definition: Definition, *, instance: object = None, queues: Queues | None = None
    ) -> None:
        functools.update_wrapper(self, definition.function)
        for name in vars(Batched).keys() & (vars(self).keys() - functools.WRAPPER_ASSIGNMENTS):
            del vars(self)[name]  # else an attribute of a callable object would hide a method
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)
        function = definition.function
        self._definition = definition
        self._instance = instance
        self._function = function if instance is None else MethodType(function, instance)
        self._own = queues
        if queues is None:
            self._making = Lock()
            self._instances = OfInstances(lambda: Queues(definition, definition.of_method))

    @property
    def _queues(self) -> Queues:
        if self._own is None:
            with self._making:
                if self._own is None:
                    self._own = Queues(self._definition, self._definition.parameters)
        return self._own

    def __get__(self, instance: object, owner: type | None = None) -> Batched[P, R]:
        if self._definition.of_class:
            instance = owner
        if instance is None or self._instance is not None:
            return self
        return Batched(self._definition, instance=instance, queues=self._instances.of(instance))

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        queues = self._queues
        if queues.parameters.takes_instance:
            return await self._of_instance(args)(*args[1:], **kwargs)  # type: ignore[arg-type]
        item = Item(self._function, queues.parameters.bind(args, kwargs), copy_context())
        result: R = await queues.here().call(item)
        return result

    def _of_instance(self, args: tuple[Any, ...]) -> Batched[P, R]:
        """Return the method of the instance that is the first argument."""
        if not args or args[0] is None:
            name = self._definition.rules.name
            raise TypeError(f"{name}() is a method and was called without its instance")
        return self.__get__(args[0], args[0])

    def _with_instance(self) -> Queues:
        """Return the queues of this function."""
        if self._queues.parameters.takes_instance:
            raise TypeError(
                f"{self._definition.rules.name} is a method, and this is about one instance: write "
                "INSTANCE.METHOD; for a class method, write @batched() above @classmethod"
            )
        return self._queues

    def stats(self) -> BatchedStats:
        """Return the queued and running items, the counts and the estimate.

        Raises:
            TypeError: for a method without its instance.
        """
        return self._with_instance().stats()

    async def warm_up(self, *, seconds: float = WARM_UP_S) -> None:
        """Run batches of the example, ``warmup``: the first callers then find a warm model and an estimate.

        Sizes double from 1 up to ``mb_max_batch_size`` and run twice each; a larger size begins only if it is
        expected to end within ``seconds`` from the start. A size that does not fit into memory ends it, and
        limits batches. Callers that come meanwhile wait.

        Raises:
            DefinitionError: without ``warmup``.
            TypeError: for a method without its instance.
            RuntimeError: if the function calls this.
            Exception: of the function.
        """
        definition, queues = self._definition, self._with_instance()
        if definition.warmup is None:
            raise DefinitionError(
                f"@batched: {definition.rules.name} has no example to warm up with; set warmup"
            )
        item = Item(self._function, queues.parameters.example(definition.warmup), copy_context())
        await warm_up(queues.here(), item, cost=definition.cost_of(item.values), seconds=seconds)

    def __reduce__(self) -> str | tuple[Any, ...]:
        # Like a function: by its name.
        name = self._definition.function.__qualname__
        return name if self._instance is None else (getattr, (self._instance, name.rpartition(".")[2]))


async def warm_up(queue: LoopQueue, item: Item, *, cost: float | None, seconds: float) -> None:
    """Run growing batches of an item, and teach the queue their times and the size that fits into memory.

    Raises:
        Exception: of the function.
    """
    clock = asyncio.get_running_loop().time
    ends, each = clock() + seconds, cost or 1.0
    most = 1 if queue.rules.policy == "none" else max(1, int(queue.rules.max_batch_rows // each))
    sizes = WarmUpSizes(doubling(most))
    chunks: list[tuple[float, float]] = []
    while (size := sizes.next(ends - clock())) is not None:
        try:
            took_s = [await _run(queue, [item] * size) for _ in range(RUNS_PER_SIZE)]
        except Exception as error:
            if not sizes.ran or not is_out_of_memory(error):
                raise
            sizes.too_large = size
        else:
            sizes.worked(size, min(took_s))
            chunks.append((size * each, min(took_s)))
        if sizes.too_large:
            queue.limit.become(SizeLimit(sizes.ran[-1] * each))
            queue.set_limit()
    queue.learn(chunks)


async def _run(queue: LoopQueue, items: list[Item]) -> float:
    """Return the seconds of a call."""
    outcome, took_s = await queue.try_alone(items)
    failed = (
        [one.error for one in outcome if isinstance(one, Failed)] if isinstance(outcome, list) else [outcome]
    )
    if not failed:
        return took_s
    try:
        raise failed[0]
    finally:
        del outcome, failed  # else the traceback refers to the exception
