"""Find the requests that make a batch fail, or parts that fit into memory, so that the others get results.

The search only says which part runs next: workers and ``@batched`` run it.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from copy import copy
from functools import reduce
from typing import Generic, TypeVar

from uncork_workers.process.batches.failures import FailedCall
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.costs import Extent, cut

R = TypeVar("R")
F = TypeVar("F", bound=FailedCall)
T = TypeVar("T")
Part = Sequence[int]
"""Positions of requests in the batch."""
Steps = Generator[Part, Sequence[R] | F, T]
"""Yields a part to run, and gets one result per request, or the failure."""

# If more parts than this fail on one level and none succeeds, perhaps all requests fail: some are run alone.
_FEW_PARTS = 4
# How many are run alone then, and how many may be left so that running them costs little.
_SAMPLES = 16


class Search(Generic[R, F]):
    """The search in a batch that failed.

    Run :attr:`part` and pass the outcome to :meth:`ran` until it is None; then, or before, :meth:`stop`.

    A batch that ran out of memory runs in parts as large as fit, and the limit learns from them. Any other is
    halved until each request at fault is alone.

    Args:
        requests: the rows of each request, by its position.
        failure: of all of them together.
        size: returns the size of a call with such rows.
        limit: what is known of the size that fits.
        left: returns the requests whose clients have left: they may not have run.

    Attributes:
        part: the requests to run next; None if the search has ended.
        limit: what the calls of the part may have.
        results: the results of requests that succeeded, alone or in a part.
    """

    def __init__(
        self,
        requests: Mapping[int, Extent],
        failure: F,
        *,
        size: Callable[[Extent], float],
        limit: SizeLimit,
        left: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self.limit = limit
        self._left = left
        self.results: dict[int, R] = {}
        self.culprits: dict[int, F] = {}
        """The failures of requests that failed alone."""
        self._shared: dict[int, F] = {}
        """The failure of a part, by request; counts for requests of which no more becomes known."""
        self._requests = requests
        self._size_of = size
        self._steps = self._search([*requests], failure)
        self.part: Part | None = next(self._steps, None)

    def ran(self, outcome: Sequence[R] | F) -> None:
        """Take the outcome of :attr:`part`: one result per request, or the failure of its last call."""
        try:
            self.part = self._steps.send(outcome)
        except StopIteration:
            self.part = None

    def stop(self) -> None:
        """End the search, and learn what fits."""
        self._steps.close()

    @property
    def faults(self) -> dict[int, F]:
        """The failure of each request without a result."""
        return {
            at: self.culprits.get(at, self._shared[at]) for at in self._requests if at not in self.results
        }

    def _search(self, group: Part, failure: F) -> Steps[R, F, None]:
        self._shared.update(dict.fromkeys(group, failure))
        find = self._find_fitting(group, failure) if failure.is_out_of_memory else self._find_culprits(group)
        yield from find

    def _find_culprits(self, group: Part) -> Steps[R, F, None]:
        """Halve the parts that failed, level by level, until each request at fault is alone.

        One among n requests takes at most 2*log2(n) runs. The search continues while smaller parts succeed.
        If none of a level does, nor any of 16 requests spread over the level, it ends: all may be failing.
        """
        failing = [group]
        while failing:
            answered, failed = len(self.results), 0
            halves: list[Part] = []
            for part in failing:
                halves_of_part = yield from self._failing_halves(part)
                failed += len(halves_of_part)
                halves += [half for half in halves_of_part if len(half) > 1]
            failing = halves
            if failed > _FEW_PARTS and len(self.results) == answered:
                has_hope = yield from self._try_samples([at for part in failing for at in part])
                failing = [left for part in failing if (left := self._unknown(part))]
                if not has_hope and sum(map(len, failing)) > _SAMPLES:
                    break
        for at in group:
            fault = self.culprits.get(at)
            if fault is not None and fault.is_out_of_memory and self._requests[at].rows > 1:
                del self.culprits[at]
                yield from self._search([at], fault)

    def _failing_halves(self, part: Part) -> Steps[R, F, list[Part]]:
        """Run the halves of a part that has failed, and return the halves that fail."""
        if len(part) == 1:  # the rest of a part of which samples were run
            return [] if (yield from self._succeeds(part)) else [part]
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        if (yield from self._succeeds(left)):
            # So the right half fails; running it would only confirm that, unless it is a single request.
            return [right] if len(right) > 1 or not (yield from self._succeeds(right)) else []
        return [left] if (yield from self._succeeds(right)) else [left, right]

    def _try_samples(self, requests: Part) -> Steps[R, F, bool]:
        """Run some requests alone; return whether one succeeds."""
        has_hope = False
        step = -(-len(requests) // _SAMPLES) or 1
        for at in requests[::step]:
            has_hope = (yield from self._succeeds([at])) or has_hope
        return has_hope

    def _unknown(self, part: Part) -> Part:
        return [at for at in part if at not in self.results and at not in self.culprits]

    def _succeeds(self, part: Part) -> Steps[R, F, bool]:
        outcome = yield part
        if not isinstance(outcome, FailedCall):
            self.results.update(zip(part, outcome, strict=True))
            return True
        if len(part) == 1:
            self.culprits[part[0]] = outcome
        if outcome.is_out_of_memory:
            if len(part) > 1:
                self.limit.failed(outcome.size)
            else:
                self.limit.blame_row()
        return False

    def _find_fitting(self, group: Part, failure: F) -> Steps[R, F, None]:
        """Run parts that fit, depth first, so that a size that fits is used for the rest at once.

        A request of many rows stays a part of its own, and :attr:`limit` makes its calls smaller, until a
        single row is too large, or as few as the model can have at a time. Other requests keep the limit.
        """
        known, self.limit = self.limit, copy(self.limit)
        before: SizeLimit | None = None
        """The limit of other requests while the calls of one get smaller, which is a suspicion for them."""
        pending: list[Part] = []
        """The next part is the last."""
        too_large: list[tuple[Part, float]] = []
        raised: list[Part] = []
        """The parts that failed for other reasons."""
        part: Part | None = group
        outcome: Sequence[R] | F = failure
        try:
            while part is not None:
                if not isinstance(outcome, FailedCall):
                    self.results.update(zip(part, outcome, strict=True))
                elif not outcome.is_out_of_memory:
                    self._shared.update(dict.fromkeys(part, outcome))
                    raised.append(part)
                elif len(part) == 1 and _cannot_get_smaller(part, outcome, too_large):
                    self.culprits[part[0]] = outcome
                    (before or self.limit).blame_row()
                else:
                    too_large.append((part, outcome.size))
                    if len(part) == 1:
                        before = before or copy(self.limit)
                        before.failed(outcome.size)
                    self.limit.failed(outcome.size, is_sure=len(part) == 1)
                    pending += self._cut(part)
                if before is not None and pending[-1:] != [part]:
                    self.limit, before = before, None
                part = self._next(pending)
                if part is not None:
                    outcome = yield part
        finally:
            unknown = {*group} - {*self.results}.union(*raised)
            self._learn(known, too_large, unknown.union(self._left()))
        for part in raised:
            if len(part) > 1:
                yield from self._find_culprits(part)

    def _learn(self, known: SizeLimit, too_large: Sequence[tuple[Part, float]], unknown: set[int]) -> None:
        """Add to what is known of the size that fits, the limit from here on."""
        if not unknown and all(len(part) > 1 for part, _ in too_large):
            known.become(self.limit)
        else:
            # A row that is too large alone is why the parts with it failed. Of one request, all calls may
            # have had a large row, which would shrink everybody's batches: each is a suspicion.
            for part, size in too_large:
                if unknown.isdisjoint(part):
                    known.failed(size)
        self.limit = known

    def _next(self, pending: list[Part]) -> Part | None:
        while pending:
            part = pending.pop()
            if len(part) == 1 or self._size(part) <= self.limit.most:
                return part
            pending += self._cut(part)
        return None

    def _cut(self, part: Part) -> list[Part]:
        """Cut a part into parts within the limit, in two if it is within; return them in reverse order."""
        if len(part) == 1:
            return [part]
        if self._size(part) <= self.limit.most:
            middle = len(part) // 2
            return [part[middle:], part[:middle]]
        items = [self._requests[at] for at in part]
        calls = cut(items, lambda extent: self._size_of(extent) <= self.limit.most)
        return [part[call.start : call.stop] for call in reversed(calls)]

    def _size(self, part: Part) -> float:
        return self._size_of(reduce(Extent.plus, [self._requests[at] for at in part]))


def _cannot_get_smaller(request: Part, failure: FailedCall, too_large: Sequence[tuple[Part, float]]) -> bool:
    """Return True if a call had a single row, or was no smaller than the one before of the same request."""
    last, size = too_large[-1] if too_large else ((), 0.0)
    return failure.rows <= 1 or (last == request and failure.size >= size)
