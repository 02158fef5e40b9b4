"""Delays between attempts."""

import random

_JITTER = 0.25


def backoff_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return the delay after a number of failures in a row, in seconds.

    It doubles with each failure, from ``first_s`` up to ``longest_s``, ±25 % at random so that workers do not
    retry in step.
    """
    # The cap avoids an overflow: 2.0 ** 1100 raises.
    mean_s = min(longest_s, first_s * 2.0 ** min(failures - 1, 30))
    return mean_s * random.uniform(1 - _JITTER, 1 + _JITTER)
