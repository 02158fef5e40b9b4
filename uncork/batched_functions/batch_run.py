"""One batch of a batched function: if the call fails, parts of it run, and those callers get results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from uncork.batched_functions.outcomes import Failed, Result, for_callers
from uncork_dispatcher import ApiRules, BatchResult
from uncork_workers.process.batches.bisection import Bisection
from uncork_workers.process.batches.failure import Failure
from uncork_workers.process.batches.out_of_memory import is_out_of_memory
from uncork_workers.process.batches.parts_that_fit import PartsThatFit
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.cutting import Extent

# The rest of the timeout is for the part that runs when the search for the items at fault ends.
_SHARE_OF_TIMEOUT = 0.9

Part = Sequence[int]
"""Positions of items in the batch."""
Outcome = list[Result] | Exception
"""One result per item of a call, or the exception of all."""


class BatchRun:
    """The execution of one batch. Items are identified by their position in the batch.

    Args:
        call: calls the function with some of the items.
        function: the function, for reports of its exceptions.
        extents: the size of each item.
        pads: True if the function pads items to the longest.
        limit: the size of calls that fits into memory; the batch adds to what it has learned.
        clock: returns seconds.

    Attributes:
        memory_failures: how many calls ran out of memory.
    """

    def __init__(
        self,
        call: Callable[[Part], Awaitable[Outcome]],
        *,
        function: Callable[..., Any],
        rules: ApiRules,
        extents: Sequence[Extent],
        pads: bool,
        limit: SizeLimit,
        clock: Callable[[], float],
    ) -> None:
        self._call = call
        self._function = function
        self._rules = rules
        self._extents = extents
        self._pads = pads
        self._limit = limit
        self._clock = clock
        self._ends = 0.0
        self._results: dict[int, Result] = {}
        self.memory_failures = 0

    async def run(self) -> BatchResult[Result]:
        """Return the result of each item.

        Raises:
            Exception: of the function, if no item has a result.
        """
        everything, began = range(len(self._extents)), self._clock()
        outcome = await self._try(everything)
        if not isinstance(outcome, Exception):
            return BatchResult(outcome)
        is_alone = len(everything) == 1
        if is_alone or not self._rules.idempotent:
            if is_out_of_memory(outcome) and not is_alone:
                self._limit.failed(self._size(everything))
            try:
                raise outcome
            finally:
                del outcome  # else the traceback refers to the exception
        # At the timeout no caller gets a result. A part can take as long as the failed call.
        took_s = self._clock() - began
        self._ends = began + _SHARE_OF_TIMEOUT * self._rules.timeout_s - 2 * took_s
        if is_out_of_memory(outcome):
            await self._run_smaller(everything, outcome)
        else:
            await self._find_culprits(everything, outcome)
        return BatchResult([self._results[at] for at in everything], "failed")

    async def _try(self, part: Part) -> Outcome:
        outcome = await self._call(part)
        if not isinstance(outcome, Exception):
            if self._limit.learns:
                self._limit.worked(self._size(part))
        elif is_out_of_memory(outcome):
            self.memory_failures += 1
        return outcome

    async def _find_culprits(self, group: Part, error: Exception) -> None:
        """Give items that failed together results, and those at fault their own exception."""
        search: Bisection[Result] = Bisection(group)
        while search.part is not None and self._clock() < self._ends:
            outcome = await self._try(search.part)
            if isinstance(outcome, Exception) and is_out_of_memory(outcome):
                if len(search.part) > 1:
                    self._limit.failed(self._size(search.part))
                else:
                    self._limit.blame_row()
            search.ran(outcome)
        self._results |= search.results
        self._fail(dict.fromkeys(search.given_up, error) | search.culprits)

    async def _run_smaller(self, group: Part, error: Exception) -> None:
        """Give items that ran out of memory together results in smaller parts, and learn what fits."""
        search: PartsThatFit[Result] = PartsThatFit(
            {at: self._extents[at] for at in group}, self._size_of, self._limit
        )
        known, self._limit = self._limit, search.limit
        failure = self._failure(error, group)
        search.ran(failure, rows=len(group), size=failure.size)
        while search.part is not None and self._clock() < self._ends:
            part = search.part
            outcome = await self._try(part)
            search.ran(
                self._failure(outcome, part) if isinstance(outcome, Exception) else outcome,
                rows=len(part),
                size=self._size(part),
            )
        search.learn()
        self._limit = known
        self._results |= search.results
        for part, fault in search.failed:
            if len(part) > 1:
                await self._find_culprits(part, for_callers(fault.error))
            else:
                self._fail({part[0]: fault.error})
        culprits = {at: fault.error for at, fault in search.culprits.items()}
        self._fail(dict.fromkeys(search.given_up, error) | culprits)

    def _failure(self, error: Exception, part: Part) -> Failure:
        """Free what the failed call has allocated: the parts need the memory."""
        return Failure(error, self._function, size=self._size(part))

    def _fail(self, errors: Mapping[int, BaseException]) -> None:
        self._results |= {at: Failed(for_callers(error)) for at, error in errors.items()}

    def _size(self, part: Part) -> float:
        costs = [self._extents[at].cost for at in part]
        return self._size_of(Extent(len(part), sum(costs), max(costs)))

    def _size_of(self, call: Extent) -> float:
        """Return the size of a call, as memory limits it: items, or cost with padding."""
        if not call.longest:
            return call.rows
        return call.rows * call.longest if self._pads else call.cost
