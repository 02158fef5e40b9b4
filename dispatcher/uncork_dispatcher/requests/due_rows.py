"""Counts the rows that are due after a given deadline, if deadlines are not in the order of arrival."""

from __future__ import annotations

import math


class DueRows:
    """The rows and requests of a queue by deadline, in steps of 1/64 of the goal."""

    def __init__(self, goal_s: float) -> None:
        self.goal_s = goal_s
        self._steps: dict[int, tuple[float, int]] = {}
        self._last = 0

    def add(self, deadline: float, rows: float) -> None:
        step = self._step(deadline)
        self._last = max(self._last, step) if self._steps else step
        before, requests = self._steps.get(step, (0.0, 0))
        self._steps[step] = before + rows, requests + 1

    def remove(self, deadline: float, rows: float) -> None:
        step = self._step(deadline)
        before, requests = self._steps[step]
        if requests == 1:
            del self._steps[step]
        else:
            self._steps[step] = before - rows, requests - 1

    def after(self, deadline: float) -> tuple[float, int]:
        """Return the rows and the number of requests that are due in a later step than ``deadline``."""
        first, rows, requests = self._step(deadline) + 1, 0.0, 0
        later = range(first, self._last + 1)
        # After a change of the goal, there may be more steps than requests.
        steps = later if len(later) < len(self._steps) else [step for step in self._steps if step >= first]
        for step in steps:
            more_rows, more_requests = self._steps.get(step, (0.0, 0))
            rows, requests = rows + more_rows, requests + more_requests
        return rows, requests

    def _step(self, deadline: float) -> int:
        # No deadline lies further ahead than the goal.
        return math.floor(deadline / self.goal_s * 64)
