"""The queues of a batched function, or of a method of one instance, in all event loops."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from threading import Lock
from typing import NamedTuple

from uncork.batched_functions.definition import Definition, Parameters
from uncork.batched_functions.loop_queue import LoopQueue, Threads
from uncork.batched_functions.tally import Tally

Loops = dict[asyncio.AbstractEventLoop, LoopQueue]


class BatchedStats(NamedTuple):
    """The state of a batched function, or of a method of one instance, over all event loops.

    Attributes:
        queued: the items that are queued; their cost, if the function has a ``cost``.
        running: the items in batches that run.
        batches: the batches that have ended.
        mean_size: the mean number of items in them; 0 before the first.
        refused: the calls that got :class:`RequestShed`.
        intercept_s, slope_s: the estimate: fixed seconds of a batch, and seconds per item or unit of cost.
        limit: the most items, or cost, of a batch; less than ``mb_max_batch_size`` if more did not fit into
            memory.
    """

    queued: float
    running: int
    batches: int
    mean_size: float
    refused: int
    intercept_s: float
    slope_s: float
    limit: float


class Queues:
    """The queues of a function. They end with the object: nothing refers to it but the function's callers."""

    def __init__(self, definition: Definition, parameters: Parameters) -> None:
        self.definition = definition
        self.parameters = parameters
        self.tally = Tally()
        self._tallies = [self.tally, _tallies.setdefault(definition.label, Tally())]
        name, count = definition.rules.name, definition.concurrency
        self._threads = None if definition.is_async else Threads(name, count)
        self._loops: Loops = {}
        self._lock = Lock()
        number = next(_numbers)
        _live[number] = weakref.ref(self)
        weakref.finalize(self, _close, number, self._loops).atexit = False

    def here(self) -> LoopQueue:
        """Return the queue in the running event loop."""
        loop = asyncio.get_running_loop()
        queue = self._loops.get(loop)
        if queue is None:
            with self._lock:
                for closed in [known for known in self._loops if known.is_closed()]:
                    del self._loops[closed]
                # Its timer keeps the context in which it is made: one without variables of a caller.
                queue = Context().run(
                    LoopQueue, self.definition, self.parameters, self._threads, self._tallies
                )
                self._loops[loop] = queue
        return queue

    def stats(self) -> BatchedStats:
        """Return the current state; any thread may call this."""
        queues = [queue for loop, queue in list(self._loops.items()) if not loop.is_closed()]
        samples = [queue.sample() for queue in queues]
        estimate = next((one.estimate for one in reversed(samples) if one.estimate.seconds(1)), None)
        with self.tally.lock:
            return BatchedStats(
                queued=sum(sample.queued_rows for sample in samples),
                running=sum(queue.running for queue in queues),
                batches=self.tally.batches,
                mean_size=self.tally.calls / self.tally.batches if self.tally.batches else 0.0,
                refused=self.tally.sheds.total(),
                intercept_s=0.0 if estimate is None else estimate.intercept_s,
                slope_s=0.0 if estimate is None else estimate.slope_s,
                limit=min(
                    [float(self.definition.rules.max_batch_rows), *[queue.limit.most for queue in queues]]
                ),
            )


class OfInstances:
    """The queues of a method, by instance. Instances are compared by identity and held weakly."""

    def __init__(self, make: Callable[[], Queues]) -> None:
        self._make = make
        self._known: dict[int, tuple[weakref.ref[object], Queues]] = {}
        self._lock = Lock()

    def of(self, instance: object) -> Queues:
        """Return the queues of an instance.

        Raises:
            TypeError: if it cannot be referred to weakly.
        """
        known = self._known.get(id(instance))
        if known is not None and known[0]() is instance:
            return known[1]
        with self._lock:
            known = self._known.get(id(instance))
            if known is None or known[0]() is not instance:
                known = self._reference(instance), self._make()
                self._known[id(instance)] = known
        return known[1]

    def _reference(self, instance: object) -> weakref.ref[object]:
        key, queues = id(instance), self._known
        try:
            return weakref.ref(instance, lambda _: queues.pop(key, None))
        except TypeError:
            raise TypeError(
                f"@batched: {type(instance).__name__} has no weak references, so its queues could not end "
                "with it; add '__weakref__' to its __slots__"
            ) from None


_numbers = itertools.count()
_live: dict[int, weakref.ref[Queues]] = {}
_tallies: dict[str, Tally] = {}


def live() -> list[Queues]:
    """Return all queues of the process, the oldest first; any thread may call this."""
    found = [reference() for reference in list(_live.values())]
    return [queues for queues in found if queues is not None]


def tallies() -> Mapping[str, Tally]:
    """Return the counts of all functions by label; any thread may call this."""
    return dict(_tallies)


def _close(number: int, loops: Loops) -> None:
    """Close queues whose function has gone; the thread may be any."""
    _live.pop(number, None)
    for loop, queue in list(loops.items()):
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(queue.close)
