"""Size or time, whichever comes first: what most batching servers do.

Release when ``limit_rows`` rows are queued, or when the oldest request has been queued for ``wait_s``.
Source: KServe's batcher (``maxBatchSize``, ``maxLatency``), MLServer (``max_batch_size``,
``max_batch_time``), Cortex, TensorFlow Serving (``max_batch_size``, ``batch_timeout_micros``).
Deviation: the time counts from the arrival of the oldest request, also while all workers are busy;
KServe and Cortex start it anew when the running batch ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Self

from mypy_extensions import mypyc_attr

from uncork_dispatcher.policies.base import Hold, Policy, Release, View, register

_DEFAULT_WAIT_MS = "10"
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_POSITIVE = re.compile(r"(?!0+$)[0-9]{1,9}")


@mypyc_attr(allow_interpreted_subclasses=True)
class FixedPolicy(Policy):
    """Hold until the batch is full or the oldest request has waited ``wait_s`` seconds."""

    rank = 2
    keeps_goal = False
    usage = (
        "fixed:MS or fixed:MS:ROWS sets the longest wait in ms and the rows of a full batch, 1 to 999999999"
    )

    def __init__(self, *, limit_rows: int, wait_s: float) -> None:
        super().__init__(limit_rows=limit_rows)
        self.longest_hold_s = wait_s

    @classmethod
    def from_arguments(cls, arguments: Sequence[str], *, limit_rows: int) -> Self | None:
        """Build the policy from the wait in ms, by default 10, and the rows of a full batch, if given."""
        wait_ms, *rows = arguments or [_DEFAULT_WAIT_MS]
        if len(rows) > 1 or not (_NUMBER.fullmatch(wait_ms) and all(map(_POSITIVE.fullmatch, rows))):
            return None
        return cls(limit_rows=min([limit_rows, *map(int, rows)]), wait_s=float(wait_ms) / 1000)

    def decide(self, view: View) -> Release | Hold:
        if view.full:
            return Release(self.limit_rows, "full")
        until = view.oldest + self.longest_hold_s
        if until <= view.now:
            return Release(self.limit_rows, "deadline")
        return Hold(until, "window", math.inf)


register("fixed", FixedPolicy)
