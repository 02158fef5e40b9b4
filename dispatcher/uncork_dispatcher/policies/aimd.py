"""A cap on batches that is found by trial, as a connection finds its share of a link.

An idle worker takes all queued rows at once, up to ``cap``. The cap begins at 1. When a batch has run, with
``L`` the latency goal:

* it ran longer than ``L``: ``cap = 0.9 * cap``, but never below 1;
* it did not, and was as large as the cap allowed: ``cap = cap + 1``, up to the user's limit.

The policy never holds, so batches stay small at a load that single rows can sustain. The goal applies to the
execution alone: with the wait for the batch before its own, a request may take twice as long. The cap takes
``n`` batches to grow to ``n``, which is slow for a model that needs large batches.

Source: Crankshaw et al. 2017, "Clipper: A Low-Latency Online Prediction Serving System" (NSDI), section 4.3.
Deviations: the additive step, which the paper does not give, is 1 row; a batch that was not full does not
raise the cap, because it shows nothing and the cap would rise without end; the cap belongs to the API, where
Clipper has one for each replica, so a batch above the cap (released before the cap fell, or a single larger
request) does not lower it again; there is no delayed batching, which is a separate setting of Clipper.
Clipper's released code has another rule.
"""

from __future__ import annotations

import math

from uncork_dispatcher.policies.base import Policy, Release, View, register


class AimdPolicy(Policy):
    """Additive increase and multiplicative decrease of a cap on rows, as described above."""

    rank = 3

    def __init__(self, *, limit_rows: int) -> None:
        # The cap, and not the limit of its growth: predictions of a backlog count real batches.
        super().__init__(limit_rows=1)
        self._most_rows = limit_rows
        self._cap = 1.0
        self._goal_s = math.inf

    def decide(self, view: View) -> Release:
        self._goal_s = view.goal_s
        return Release(self.limit_rows, "full" if view.full else "idle")

    def observe(self, *, now: float, rows: float, requests: int, queued_s: float, seconds: float) -> None:
        if seconds > self._goal_s:
            if rows <= self.limit_rows:
                self._cap = max(1.0, 0.9 * self._cap)
        # As large as the cap allowed: one more request of the same size would not have fitted.
        elif rows + rows / requests > self.limit_rows:
            self._cap = min(self._most_rows, self._cap + 1.0)
        self.limit_rows = int(self._cap)


register("aimd", AimdPolicy)
