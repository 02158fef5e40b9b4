"""Chooses the requests of a batch when not all queued requests can be answered in time.

Shrinking the batch to save the oldest request is a death spiral: smaller batches mean less capacity just
when it is scarce. So, unless the rest can follow in time, the batch is the largest one that finishes before
the earliest deadline in it, and the requests that prevent it are skipped (Symphony, arXiv 2308.07470).

Where lengths decide which requests share a batch, the largest batch has the most rows, not the most work: a
long request is worth no more than a short one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import Entry


class Choice(NamedTuple):
    """Skip the ``skipped`` most urgent requests, then take up to ``rows`` rows."""

    skipped: int
    rows: float


def largest_feasible_batch(
    entries: Sequence[Entry],
    *,
    limit_rows: float,
    now: float,
    next_start: float,
    estimate: Estimate,
    most_skipped: int,
) -> Choice:
    """Choose from ``entries``, most urgent first, for a batch of at most ``limit_rows`` rows that starts now.

    ``next_start`` is when the following batch can start. Skips at most ``most_skipped`` requests, and takes
    at least one.
    """
    rows = sum(entry.rows for entry in entries)
    first = estimate.rows_within(entries[0].deadline - now)
    if first >= min(rows, limit_rows):
        return Choice(0, limit_rows)
    if entries[0].rows <= first and _rest_is_safe(entries, first, limit_rows, next_start, estimate):
        return Choice(0, first)
    best = Choice(0, limit_rows)
    most = 0.0
    for skipped, entry in enumerate(entries[: most_skipped + 1]):
        fits = min(estimate.rows_within(entry.deadline - now), limit_rows, rows)
        if fits > most and fits >= entry.rows:
            best, most = Choice(skipped, fits), fits
        rows -= entry.rows
        if rows <= most:
            break
    return best


def largest_mixed_batch(
    entries: Sequence[Entry],
    *,
    limit_rows: float,
    now: float,
    estimate: Estimate,
    most_skipped: int,
    begin: Callable[[Iterable[Entry], float], Fill],
) -> Choice:
    """Choose like :func:`largest_feasible_batch` where lengths decide which requests share a batch.

    ``begin(requests, rows)`` returns an empty batch of at most ``rows`` rows, for requests in this order; the
    lengths that the batch accepts depend on the first of them.
    """
    best = Choice(0, limit_rows)
    most, left = 0.0, sum([entry.count for entry in entries])
    tried = min(most_skipped + 1, len(entries))
    # Where lengths matter, about 32 batches are compared; their first requests are evenly spread.
    step = math.ceil(tried / 32)
    for skipped in range(0, tried, step):
        fits = min(estimate.rows_within(entries[skipped].deadline - now), limit_rows)
        if fits >= entries[skipped].rows:
            fill = begin(islice(entries, skipped, None), fits)
            fill.take_from(islice(entries, skipped, None))
            if fill.count > most:
                best, most = Choice(skipped, fits), fill.count
        for entry in entries[skipped : skipped + step]:
            left -= entry.count
        if left <= most:
            break
    return best


def _rest_is_safe(
    entries: Sequence[Entry], first: float, limit_rows: float, next_start: float, estimate: Estimate
) -> bool:
    """Return True if a next batch can meet the deadlines of all requests beyond the first ``first`` rows."""
    taken = rest = 0.0
    deadline = None
    for entry in entries:
        if deadline is None and taken + entry.rows <= first:
            taken += entry.rows
            continue
        deadline = entry.deadline if deadline is None else deadline
        rest += entry.rows
    return deadline is None or (rest <= limit_rows and next_start + estimate.upper(rest) <= deadline)
