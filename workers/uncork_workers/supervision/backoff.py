"""Delays between retries."""

from __future__ import annotations

import random
from dataclasses import dataclass

_JITTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double with each failure, ±25 % at random, so that workers do not retry in step.

    Attributes:
        first_s: mean delay after the first failure, in seconds.
        longest_s: the largest mean delay, in seconds.
    """

    first_s: float
    longest_s: float

    def after(self, failures: int) -> float:
        """Return the delay in seconds after a number of failures in a row."""
        # The cap avoids an overflow: 2.0 ** 1100 raises.
        wait_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return wait_s * random.uniform(1 - _JITTER, 1 + _JITTER)
