"""Run a batch that ran out of memory in smaller parts, and learn from them how large calls may be."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Generic, TypeVar

from uncork_workers.process.batches.bisection import Part
from uncork_workers.process.batches.failure import Failure
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.wire.cutting import Extent, cut

R = TypeVar("R")


class PartsThatFit(Generic[R]):
    """The search in a batch that ran out of memory. Run :attr:`part` and pass the outcome to :meth:`ran`
    until it is None; then call :meth:`learn`.

    Depth first, so that a size that fits is used for the rest at once. A request of many rows stays a part of
    its own, and :attr:`limit` makes its calls smaller.

    Args:
        requests: the rows of each request, by its position.
        size: returns the size of a call with such rows.
        known: what is known of the size that fits.

    Attributes:
        part: the requests to run next; None if the search has ended.
        limit: what calls may have during the search.
        results: the results of requests that succeeded.
        culprits: requests of which a single row is too large, or as few as the model can have at a time.
        failed: the parts that failed for other reasons.
    """

    def __init__(
        self, requests: Mapping[int, Extent], size: Callable[[Extent], float], known: SizeLimit
    ) -> None:
        self.part: Part | None = [*requests]
        self.limit = known.copy()
        self.results: dict[int, R] = {}
        self.culprits: dict[int, Failure] = {}
        self.failed: list[tuple[Part, Failure]] = []
        self._requests = requests
        self._size_of = size
        self._known = known
        self._pending: list[Part] = []
        """The next part is the last."""
        self._too_large: list[tuple[Part, float]] = []
        self._last: tuple[Part, float] = (), 0.0
        """The part that ran last, and the size of its last call."""

    @property
    def given_up(self) -> list[int]:
        """Requests of which nothing is known, if the search is stopped before its end."""
        ended = {*self.results, *self.culprits, *[at for part, _ in self.failed for at in part]}
        return [at for at in self._requests if at not in ended]

    def ran(self, outcome: Sequence[R] | Failure, *, rows: int, size: float) -> None:
        """Take the outcome of :attr:`part`, whose last call had these rows and this size."""
        part = self.part
        assert part is not None
        if not isinstance(outcome, Failure):
            self.results.update(zip(part, outcome, strict=True))
        elif not outcome.is_out_of_memory:
            self.failed.append((part, outcome))
        elif len(part) == 1 and (rows <= 1 or (self._last[0] == part and size >= self._last[1])):
            self.culprits[part[0]] = outcome
            self.limit.blame_row()
        else:
            self._too_large.append((part, size))
            # For this search: the calls of one request must get smaller.
            self.limit.failed(size, is_sure=len(part) == 1)
            self._pending += self._cut(part)
        self._last = part, size
        self.part = self._next()

    def learn(self) -> None:
        """Add to what is known of the size that fits."""
        unknown = {*self.culprits, *self.given_up}
        if not unknown and all(len(part) > 1 for part, _ in self._too_large):
            self._known.become(self.limit)
            return
        # A row that is too large alone is why the parts with it failed. Of one request, all calls may have
        # had a large row, which would shrink everybody's batches: each is a suspicion.
        for part, size in self._too_large:
            if not any(at in unknown for at in part):
                self._known.failed(size)

    def _next(self) -> Part | None:
        while self._pending:
            part = self._pending.pop()
            if len(part) == 1 or self._size(part) <= self.limit.most:
                return part
            self._pending += self._cut(part)
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
