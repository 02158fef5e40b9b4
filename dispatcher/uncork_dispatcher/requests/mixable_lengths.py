"""Chooses the lengths that may share a batch with the most urgent request, for models that pad batches.

Padding wastes the time of a batch; splitting the batch costs the fixed time of another batch. The interval
of lengths starts at the most urgent request. It grows by the neighbor that adds less padding, until the
padding costs more than a share of another batch. Until it is known whether the model pads, the padding may
cost as much as the batches that the requests would need one by one: a mixed batch shows whether the model
pads, and should take no longer than they would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter

from uncork_dispatcher.requests.lengths import Lengths
from uncork_dispatcher.requests.queue import Entry

SAMPLE = 32
"""How many of the most urgent requests the choice considers."""

_by_length = attrgetter("length")


def mixable_lengths(
    sample: Sequence[Entry],
    *,
    queued: int,
    limit: float,
    spare: float,
    most_rows: float = math.inf,
    each: bool = False,
) -> Lengths:
    """Return the shortest and the longest row that may share a batch with the first of ``sample``.

    Args:
        sample: the most urgent of the ``queued`` requests; must not be empty.
        limit: the largest permitted size of a batch, padding included.
        spare: the padding worth accepting, in the unit of ``limit``; infinite if padding costs nothing.
        most_rows: the most rows in a batch.
        each: accept ``spare`` for each request but the first, rather than for the batch.
    """
    if spare == math.inf:
        return Lengths(0.0, math.inf)
    by_length = sorted(sample, key=_by_length)
    low = by_length.index(sample[0])
    high = low + 1
    count, longest, padding = sample[0].count, sample[0].length, 0.0
    # The whole queue has more of each length, until the limit cuts it off.
    share = queued / len(sample)
    while low or high < len(by_length):
        # A shorter one pads itself, a longer one all others.
        shorter = (longest - by_length[low - 1].length) * by_length[low - 1].count if low else math.inf
        longer = (by_length[high].length - longest) * count if high < len(by_length) else math.inf
        joins = by_length[low - 1] if shorter <= longer else by_length[high]
        more = min(shorter, longer)
        top = max(longest, joins.length)
        more_count = count + joins.count
        size = more_count * top
        scale = min(share, limit / size, most_rows / more_count)
        accepted = spare * ((high - low + 1) * scale - 1) if each else spare
        # Padding of 5 % of a batch is never worth a split.
        if (padding + more) * scale > accepted + 0.05 * size * scale:
            break
        padding, count, longest = padding + more, more_count, top
        if shorter <= longer:
            low -= 1
        else:
            high += 1
    return Lengths(by_length[low].length, by_length[high - 1].length)
