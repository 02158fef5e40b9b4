"""Counts for Triton's statistics that ``/metrics`` lacks: sums by outcome, and batches by size."""

from __future__ import annotations

from collections import Counter, defaultdict

from uncork_dispatcher import BatchFacts

# A client chooses how many rows its request has, and so how many sizes there are.
_MOST_SIZES = 1000
_FIRST_ERROR = 400


class InferenceTally:
    """Sums over one api since the gateway started. Times in seconds.

    Attributes:
        last_release: when the last batch was released, since the epoch; 0 before the first.
        rows: those of requests that were answered without an error.
        succeeded_s: from request to reply, of requests that were answered without an error.
        failed_s: the same, of all others.
        ran: requests in batches that worked.
        run_s: how long they ran with their batches.
        batches: how many worked, by rows; sizes beyond the first 1000 are not counted.
        batches_s: how long they took, by rows.
    """

    def __init__(self) -> None:
        self.last_release = 0.0
        self.rows = 0
        self.succeeded_s = 0.0
        self.failed_s = 0.0
        self.ran = 0
        self.run_s = 0.0
        self.batches: Counter[int] = Counter()
        self.batches_s: defaultdict[int, float] = defaultdict(float)

    def copy(self) -> InferenceTally:
        """Return one that does not change when this one counts on."""
        copied = InferenceTally()
        vars(copied).update(vars(self), batches=self.batches.copy(), batches_s=self.batches_s.copy())
        return copied

    def answered(self, status: int, seconds: float, rows: int) -> None:
        """Count the reply to a request of so many rows."""
        if is_success(status):
            self.succeeded_s += seconds
            self.rows += rows
        else:
            self.failed_s += seconds

    def worked(self, batch: BatchFacts) -> None:
        """Count a batch that worked."""
        requests = len(batch.start.requests)
        self.ran += requests
        self.run_s += requests * batch.seconds
        if batch.rows in self.batches or len(self.batches) < _MOST_SIZES:
            self.batches[batch.rows] += 1
            self.batches_s[batch.rows] += batch.seconds


def is_success(status: int) -> bool:
    """Whether a reply of this status is an answer, not an error."""
    return status < _FIRST_ERROR
