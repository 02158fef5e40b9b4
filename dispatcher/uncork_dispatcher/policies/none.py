"""No batching: every request alone, as soon as a worker is idle."""

from __future__ import annotations

from uncork_dispatcher.policies.base import Policy, Release, View, register


class NonePolicy(Policy):
    """Release one request at a time, first come first served."""

    rank = 4
    keeps_goal = False
    most_requests = 1

    def __init__(self, *, limit_rows: int = 1) -> None:
        super().__init__(limit_rows=1)

    def decide(self, view: View) -> Release:
        return Release(1, "idle")


register("none", NonePolicy)
