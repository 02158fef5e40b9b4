"""One batch of a batched function: if the call fails, parts of it run, and those callers get results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from uncork_dispatcher import ApiRules, BatchResult, DispatchError
from uncork_workers.process.batches.failures import FailedCall
from uncork_workers.process.batches.search import Part, Search
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.costs import Extent

# The rest of the timeout is for the part that runs when the search for the items at fault ends.
_SHARE_OF_TIMEOUT = 0.9


class Failed(NamedTuple):
    """The exception that a call raises in place of a result."""

    error: Exception


Result = Any | Failed


def result_of(returned: Any) -> Result:
    """Return the result of a call; an exception that the function returned is raised to the caller."""
    return Failed(for_callers(returned)) if isinstance(returned, BaseException) else returned


def for_callers(error: BaseException) -> Exception:
    """Return an exception that a caller can be given: no cancellation."""
    if isinstance(error, Exception):
        return error
    what = "was cancelled from within" if isinstance(error, asyncio.CancelledError) else f"raised {error!r}"
    failed = DispatchError(f"the batch function {what}")
    failed.__cause__ = error
    return failed


_FORGOTTEN = RuntimeError("the batch has ended")

Outcome = list[Result] | Exception
"""One result per item of a call, or the exception of all."""


class BatchRun:
    """The execution of one batch. Items are identified by their position in the batch.

    Args:
        call: calls the function with some of the items.
        extents: the size of each item.
        pads: True if the function pads items to the longest.
        limit: the size of calls that fits into memory; the batch adds to what it has learned.

    Attributes:
        memory_failures: how many calls ran out of memory.
    """

    def __init__(
        self,
        call: Callable[[Part], Awaitable[Outcome]],
        *,
        rules: ApiRules,
        extents: Sequence[Extent],
        pads: bool,
        limit: SizeLimit,
        clock: Callable[[], float],
    ) -> None:
        self._call = call
        self._rules = rules
        self._extents = extents
        self._pads = pads
        self._limit = limit
        self._clock = clock
        self._failures: list[FailedCall] = []

    @property
    def memory_failures(self) -> int:
        return sum(failure.is_out_of_memory for failure in self._failures)

    async def run(self) -> BatchResult[Result]:
        """Return the result of each item.

        Raises:
            Exception: of the function, if no item has a result.
        """
        everything, began = range(len(self._extents)), self._clock()
        outcome = await self._try(everything, self._limit)
        if not isinstance(outcome, FailedCall):
            return BatchResult(outcome)
        try:
            is_alone = len(everything) == 1
            if is_alone or not self._rules.idempotent:
                if outcome.is_out_of_memory and not is_alone:
                    self._limit.failed(outcome.size)
                raise outcome.error
            # At the timeout no caller gets a result. A part can take as long as the failed call.
            took_s = self._clock() - began
            ends = began + _SHARE_OF_TIMEOUT * self._rules.timeout_s - 2 * took_s
            results = await self._search(outcome, ends)
            return BatchResult([results[at] for at in everything], "failed")
        finally:
            # Their tracebacks refer to the frames of the function and, from Python 3.13 on, to the frames
            # here that have awaited it.
            for failure in self._failures:
                failure.error = _FORGOTTEN

    async def _search(self, failure: FailedCall, ends: float) -> dict[int, Result]:
        """Return the result of each item, or for those at fault their own exception."""
        items = dict(enumerate(self._extents))
        search: Search[Result, FailedCall] = Search(items, failure, size=self._size_of, limit=self._limit)
        while search.part is not None and self._clock() < ends:
            search.ran(await self._try(search.part, search.limit))
        search.stop()
        faults = {at: Failed(for_callers(fault.error)) for at, fault in search.faults.items()}
        return search.results | faults

    async def _try(self, part: Part, limit: SizeLimit) -> list[Result] | FailedCall:
        outcome: Outcome = await self._call(part)
        if not isinstance(outcome, Exception):
            if limit.learns:
                limit.worked(self._size(part))
            return outcome
        failed = FailedCall(outcome, rows=len(part), size=self._size(part))
        if failed.is_out_of_memory:
            failed.free()  # the parts need the memory
        self._failures.append(failed)
        return failed

    def _size(self, part: Part) -> float:
        costs = [self._extents[at].cost for at in part]
        return self._size_of(Extent(len(part), sum(costs), max(costs)))

    def _size_of(self, call: Extent) -> float:
        """Return the size of a call, as memory limits it: items, or cost with padding."""
        if not call.longest:
            return call.rows
        return call.rows * call.longest if self._pads else call.cost
