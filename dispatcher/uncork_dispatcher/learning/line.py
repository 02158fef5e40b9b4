"""Formulas for the line of batch times: a batch of ``n`` rows takes ``s(n) = a + b * n`` seconds."""

from __future__ import annotations

import math


def keep_up_rows(rate: float, *, workers: int, intercept_s: float, slope_s: float) -> float:
    """Return ``n*``, the mean rows of a batch with which workers just keep up with ``rate`` rows per second.

    ``n* = rate * a / (W - rate * b)``, because ``rate / n`` batches per second keep ``W`` workers busy if
    ``rate / n * s(n) = W``. The result may be below 1; it is infinity if no batch size suffices.
    """
    idle = workers - rate * slope_s
    return rate * intercept_s / idle if idle > 0 else math.inf


def rows_within(seconds: float, *, intercept_s: float, slope_s: float) -> float:
    """Return the rows, not rounded, of the largest batch that takes ``seconds``: ``(seconds - a) / b``.

    Negative if an empty batch takes longer; infinity if rows take no time.
    """
    spare_s = seconds - intercept_s
    if slope_s > 0:
        return spare_s / slope_s
    return math.inf if spare_s >= 0 else -math.inf
