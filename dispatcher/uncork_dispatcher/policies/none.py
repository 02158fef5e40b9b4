"""No batching: every request alone, as soon as a worker is idle."""

from __future__ import annotations

from uncork_dispatcher.policies.base import BatchDone, Release, View


class NonePolicy:
    """Release one request at a time, first come first served."""

    limit_rows = 1

    def decide(self, view: View) -> Release:
        """Release the oldest request."""
        return Release(1, "idle")

    def observe(self, done: BatchDone) -> None:
        """Nothing to learn."""
