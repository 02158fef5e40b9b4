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

_FORGOTTEN = RuntimeError("the batch has ended")

Part = Sequence[int]
"""Positions of items in the batch."""
Outcome = list[Result] | Exception
"""One result per item of a call, or the exception of all."""


class _CallFailed(Exception):
    """Stands for the exception of a failed call until the batch has ended; never raised itself."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.args = ()
        self.error: BaseException = error
        self.is_out_of_memory = is_out_of_memory(error)


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
        self._failures: list[_CallFailed | Failure] = []
        self.memory_failures = 0

    async def run(self) -> BatchResult[Result]:
        """Return the result of each item.

        Raises:
            Exception: of the function, if no item has a result.
        """
        everything, began = range(len(self._extents)), self._clock()
        outcome = await self._try(everything)
        if not isinstance(outcome, _CallFailed):
            return BatchResult(outcome)
        try:
            is_alone = len(everything) == 1
            if is_alone or not self._rules.idempotent:
                if outcome.is_out_of_memory and not is_alone:
                    self._limit.failed(self._size(everything))
                raise outcome.error
            # At the timeout no caller gets a result. A part can take as long as the failed call.
            took_s = self._clock() - began
            self._ends = began + _SHARE_OF_TIMEOUT * self._rules.timeout_s - 2 * took_s
            if outcome.is_out_of_memory:
                await self._run_smaller(everything, outcome)
            else:
                await self._find_culprits(everything, outcome)
            return BatchResult([self._results[at] for at in everything], "failed")
        finally:
            self._forget_exceptions()

    async def _try(self, part: Part) -> list[Result] | _CallFailed:
        outcome: list[Result] | Exception = await self._call(part)
        if not isinstance(outcome, Exception):
            if self._limit.learns:
                self._limit.worked(self._size(part))
            return outcome
        outcome = failed = _CallFailed(outcome)
        self._failures.append(failed)
        self.memory_failures += failed.is_out_of_memory
        return failed

    def _forget_exceptions(self) -> None:
        """Drop the exceptions: their tracebacks refer to the frames of the function and, from Python 3.13 on,
        to the frames here that have awaited it.
        """
        for failure in self._failures:
            failure.error = _FORGOTTEN
            failure.args = ()
        self._results.clear()

    async def _find_culprits(self, group: Part, failed: _CallFailed | Failure) -> None:
        """Give items that failed together results, and those at fault their own exception."""
        search: Bisection[Result] = Bisection(group)
        while search.part is not None and self._clock() < self._ends:
            outcome = await self._try(search.part)
            if isinstance(outcome, _CallFailed) and outcome.is_out_of_memory:
                if len(search.part) > 1:
                    self._limit.failed(self._size(search.part))
                else:
                    self._limit.blame_row()
            search.ran(outcome)
        self._results |= search.results
        self._fail(dict.fromkeys(search.given_up, failed) | search.culprits)

    async def _run_smaller(self, group: Part, failed: _CallFailed) -> None:
        """Give items that ran out of memory together results in smaller parts, and learn what fits."""
        search: PartsThatFit[Result] = PartsThatFit(
            {at: self._extents[at] for at in group}, self._size_of, self._limit
        )
        known, self._limit = self._limit, search.limit
        search.ran(self._failure(failed, group), rows=len(group), size=self._size(group))
        while search.part is not None and self._clock() < self._ends:
            part = search.part
            outcome = await self._try(part)
            search.ran(
                self._failure(outcome, part) if isinstance(outcome, _CallFailed) else outcome,
                rows=len(part),
                size=self._size(part),
            )
        search.learn()
        self._limit = known
        self._results |= search.results
        for part, fault in search.failed:
            if len(part) > 1:
                await self._find_culprits(part, fault)
            else:
                self._fail({part[0]: fault})
        self._fail({**dict.fromkeys(search.given_up, failed), **search.culprits})

    def _failure(self, failed: _CallFailed, part: Part) -> Failure:
        """Free what the failed call has allocated: the parts need the memory."""
        failure = Failure(failed.error, self._function, size=self._size(part))
        self._failures.append(failure)
        return failure

    def _fail(self, failures: Mapping[int, BaseException]) -> None:
        for at, failure in failures.items():
            assert isinstance(failure, _CallFailed | Failure)
            self._results[at] = Failed(for_callers(failure.error))

    def _size(self, part: Part) -> float:
        costs = [self._extents[at].cost for at in part]
        return self._size_of(Extent(len(part), sum(costs), max(costs)))

    def _size_of(self, call: Extent) -> float:
        """Return the size of a call, as memory limits it: items, or cost with padding."""
        if not call.longest:
            return call.rows
        return call.rows * call.longest if self._pads else call.cost
