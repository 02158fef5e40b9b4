"""Counts for Triton's statistics that ``/metrics`` lacks."""

from __future__ import annotations

from collections import Counter, defaultdict

from uncork_dispatcher import BatchFacts

# Clients choose the rows of a request, and so the number of sizes.
_MOST_SIZES = 1000
_FIRST_ERROR = 400


class InferenceTally:
    """Sums over one API since the gateway started. Times in seconds.

    Attributes:
        last_release: time of the last release, since the epoch; 0 before the first.
        rows: rows of requests that were answered without an error.
        succeeded_s: time from request to reply of requests that were answered without an error.
        failed_s: time from request to reply of all others.
        ran: requests in batches that succeeded.
        run_s: total time that these requests spent in their batches.
        batches: batches that succeeded, by rows; sizes beyond the first 1000 are not counted.
        batches_s: execution time of these batches, by rows.
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

    def answered(self, status: int, seconds: float, rows: int) -> None:
        if is_success(status):
            self.succeeded_s += seconds
            self.rows += rows
        else:
            self.failed_s += seconds

    def worked(self, batch: BatchFacts) -> None:
        requests = len(batch.start.requests)
        self.ran += requests
        self.run_s += requests * batch.seconds
        if batch.rows in self.batches or len(self.batches) < _MOST_SIZES:
            self.batches[batch.rows] += 1
            self.batches_s[batch.rows] += batch.seconds


def is_success(status: int) -> bool:
    """Return whether a response with this status is not an error."""
    return status < _FIRST_ERROR
