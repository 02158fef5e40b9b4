"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass

_JITTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from one failure to the next.

    Each is up to a quarter longer or shorter, so that workers that fail for the same reason do not all try
    again at the same moment.

    Attributes:
        first_s: seconds after the first failure, in the mean.
        longest_s: seconds that are waited at most, in the mean.
    """

    first_s: float
    longest_s: float

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        # Doubled 30 times anything is longer than the longest; 2.0 ** 1100 would be an error.
        wait_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return wait_s * random.uniform(1 - _JITTER, 1 + _JITTER)
