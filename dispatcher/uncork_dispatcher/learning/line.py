"""What follows from the line of batch times, ``s(n) = a + b * n``: a batch of ``n`` rows takes ``s(n)``."""

from __future__ import annotations

import math


def keep_up_rows(rate: float, *, workers: int, intercept_s: float, slope_s: float) -> float:
    """Return the smallest mean batch with which workers keep up, ``n*``, maybe below 1; infinity if none.

    ``n* = rate * a / (W - rate * b)``: batches of ``n`` rows start ``rate / n`` times per second, and ``W``
    workers that are never idle give ``rate / n * s(n) = W``. ``rate`` is rows per second.
    """
    idle = workers - rate * slope_s
    return rate * intercept_s / idle if idle > 0 else math.inf


def rows_within(seconds: float, *, intercept_s: float, slope_s: float) -> float:
    """Return the rows, whole or not, of the largest batch that takes so long: ``(seconds - a) / b``.

    Negative if an empty batch takes longer; infinity if rows take no time.
    """
    spare_s = seconds - intercept_s
    if slope_s > 0:
        return spare_s / slope_s
    return math.inf if spare_s >= 0 else -math.inf
