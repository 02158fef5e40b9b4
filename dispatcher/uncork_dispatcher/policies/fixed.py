"""Size or time, whichever comes first: what most batching servers do.

Release when ``limit_rows`` rows are held, or when the oldest request has been held for ``wait_s``.
Source: KServe's batcher (``maxBatchSize``, ``maxLatency``), MLServer (``max_batch_size``,
``max_batch_time``), Cortex, TensorFlow Serving (``max_batch_size``, ``batch_timeout_micros``).
Deviation: the time counts from the arrival of the oldest request, also while all workers are busy;
KServe and Cortex start it anew when the running batch ends.
"""

from __future__ import annotations

from uncork_dispatcher.policies.base import BatchDone, Hold, Release, View


class FixedPolicy:
    """Hold until the batch is full or the oldest request has waited ``wait_s`` seconds."""

    def __init__(self, *, limit_rows: int, wait_s: float) -> None:
        self.limit_rows = limit_rows
        self.wait_s = wait_s

    def decide(self, view: View) -> Release | Hold:
        """Release when full or when the wait is over."""
        if view.full:
            return Release(self.limit_rows, "full")
        until = view.oldest + self.wait_s
        if until <= view.now:
            return Release(self.limit_rows, "deadline")
        return Hold(until, "window")

    def observe(self, done: BatchDone) -> None:
        """Nothing to learn."""
