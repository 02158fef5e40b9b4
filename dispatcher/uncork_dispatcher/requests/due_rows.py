"""Counts the rows that are due after a given deadline, if deadlines are not in the order of arrival."""

from __future__ import annotations

import math
from collections.abc import Iterable

# So many steps make one of the next level.
_STEPS = 64


class DueRows:
    """The rows and requests of a queue by deadline, in steps of 1/64 of the goal, but at most 1/64 s.

    With a long goal there are many steps, so there are levels of longer steps, each of 64 of the one before.
    """

    def __init__(self, goal_s: float) -> None:
        self.goal_s = goal_s
        self._step_s = min(goal_s, 1.0) / _STEPS
        # An infinite goal has as many levels as one of 30 years.
        levels = 1 + max(0, math.ceil(math.log(min(goal_s, 1e9), _STEPS)))
        self._levels: list[dict[int, tuple[float, int]]] = [{} for _ in range(levels)]
        self._last = 0

    def add(self, deadline: float, rows: float) -> None:
        step = self._step(deadline)
        self._last = max(self._last, step) if self._levels[0] else step
        for steps in self._levels:
            before, requests = steps.get(step, (0.0, 0))
            steps[step] = before + rows, requests + 1
            step //= _STEPS

    def remove(self, deadline: float, rows: float) -> None:
        step = self._step(deadline)
        for steps in self._levels:
            before, requests = steps[step]
            if requests == 1:
                del steps[step]
            else:
                steps[step] = before - rows, requests - 1
            step //= _STEPS

    def after(self, deadline: float) -> tuple[float, int]:
        """Return the rows and the number of requests that are due in a later step than ``deadline``."""
        step, last, rows, requests = self._step(deadline), self._last, 0.0, 0
        for steps in self._levels:
            if step >= last:
                break
            end = last + 1
            if steps is not self._levels[-1]:
                end = min(end, (step // _STEPS + 1) * _STEPS)
            later: Iterable[int] = range(step + 1, end)
            if end - step > len(steps):
                later = [each for each in steps if step < each < end]
            for each in later:
                more_rows, more_requests = steps.get(each, (0.0, 0))
                rows, requests = rows + more_rows, requests + more_requests
            step, last = step // _STEPS, last // _STEPS
        return rows, requests

    def _step(self, deadline: float) -> int:
        return math.floor(deadline / self._step_s)
