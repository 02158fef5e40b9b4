"""Chooses when refused clients should retry."""

from __future__ import annotations

import math

# The longest time until a retry before it is spread: predictions of backlogs beyond a minute are not trusted.
_LONGEST_RETRY_S = 60.0
# Multiples of the golden ratio fall evenly between whole numbers, however many there are.
_GOLDEN = 0.618034
# The share of the workers' capacity for clients that return after a refusal.
_RETURNING_SHARE = 0.1


class RetrySchedule:
    """Gives each refused client its own time to retry.

    If all returned at once, most would be refused again. So returning clients get a tenth of the workers'
    capacity, and new clients the rest. Each waiting time is multiplied by another factor between 1 and 2,
    because after rounding to seconds, clients refused together would otherwise return together.
    """

    def __init__(self) -> None:
        self._retry_slots_until = -math.inf
        """When the next refused client may retry."""
        self._refused = 0

    def next_after_s(self, *, now: float, due: float, earliest: float, seconds: float) -> float:
        """Return in how many seconds to retry a request that takes ``seconds``, not before ``earliest``.

        ``due`` is when the first worker is ready, if none is: that is no prediction of a backlog.
        """
        turn = min(max(self._retry_slots_until, earliest), max(due, now + _LONGEST_RETRY_S))
        self._retry_slots_until = turn + seconds / _RETURNING_SHARE
        spread = self._refused * _GOLDEN % 1
        self._refused += 1
        return (turn - now) * (1 + spread)
