"""Find the requests that make a batch fail, so that the others can be answered."""

from collections.abc import Generator, Sequence
from typing import Generic, TypeVar

R = TypeVar("R")
Part = Sequence[int]
"""Positions of requests in the batch."""
Outcome = Sequence[R] | BaseException
Search = Generator[Part, Outcome[R], R]

# If more parts than this fail on one level and none succeeds, perhaps all requests fail: some are run alone.
_FEW_PARTS = 4
# How many are run alone then, and how many may be left so that running them costs little.
_SAMPLES = 16


class Bisection(Generic[R]):
    """The search in a failed batch. Run :attr:`part` and pass the outcome to :meth:`ran` until it is None.

    The search halves the parts that failed, level by level, until each request at fault is alone. One among n
    requests takes at most 2*log2(n) runs. The search continues while smaller parts succeed. If none of a
    level does, nor any of 16 single requests spread over the level, the search ends: all may be failing.

    Args:
        requests: the positions of two or more requests.

    Attributes:
        part: the requests to run next; None if the search has ended.
        results: the results of requests that succeeded, alone or in a part.
        culprits: the exceptions of requests that failed alone.
    """

    def __init__(self, requests: Part) -> None:
        self.results: dict[int, R] = {}
        self.culprits: dict[int, BaseException] = {}
        self._requests = requests
        self._search = self._levels()
        self.part: Part | None = next(self._search)

    @property
    def given_up(self) -> list[int]:
        """Requests that have failed only together with others, after the search has ended."""
        return [at for at in self._requests if at not in self.results and at not in self.culprits]

    def ran(self, outcome: Outcome[R]) -> None:
        """Take the outcome of :attr:`part`: one result per request, or the exception with which it failed."""
        try:
            self.part = self._search.send(outcome)
        except StopIteration:
            self.part = None

    def _levels(self) -> Generator[Part, Outcome[R], None]:
        failing: list[Part] = [self._requests]
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
                failing = [left for part in failing if (left := self._without_answers(part))]
                if not has_hope and sum(map(len, failing)) > _SAMPLES:
                    return

    def _failing_halves(self, part: Part) -> Generator[Part, Outcome[R], list[Part]]:
        """Run the halves of a part that has failed, and return the halves that fail."""
        if len(part) == 1:  # the rest of a part of which samples were run
            return [] if (yield from self._succeeds(part)) else [part]
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        if (yield from self._succeeds(left)):
            # So the right half fails; running it would only confirm that, unless it is a single request.
            return [right] if len(right) > 1 or not (yield from self._succeeds(right)) else []
        return [left] if (yield from self._succeeds(right)) else [left, right]

    def _try_samples(self, requests: Part) -> Generator[Part, Outcome[R], bool]:
        """Run some requests alone; return whether one succeeds."""
        has_hope = False
        step = -(-len(requests) // _SAMPLES) or 1
        for at in requests[::step]:
            has_hope = (yield from self._succeeds([at])) or has_hope
        return has_hope

    def _without_answers(self, part: Part) -> Part:
        return [at for at in part if at not in self.results and at not in self.culprits]

    def _succeeds(self, part: Part) -> Generator[Part, Outcome[R], bool]:
        outcome = yield part
        if not isinstance(outcome, BaseException):
            self.results.update(zip(part, outcome, strict=True))
            return True
        if len(part) == 1:
            self.culprits[part[0]] = outcome
        return False
