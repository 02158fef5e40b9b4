"""Decides whether the clients of a closed loop should take turns, in two groups for each worker.

Clients that wait for their responses return together, and until then the worker is idle. With two groups that
take turns, the worker runs the batch of one group while the other is away, and the next batch can be sent
ahead. The price is the fixed part of one more batch. Let each worker serve clients with ``n`` rows, a batch
take ``s(n) = a + b * n``, its transport ``t``, and the return of a group of ``n`` rows ``T(n)``. Then each
client is answered once in::

    together:  p(n) + s(n) + t + T(n)
    in turns:  max(2 * s(n / 2), p(n / 2) + s(n / 2) + t + T(n / 2))

A worker prepares a batch for ``p(n)`` while it runs another; 0 if it has no such stage. If batches cannot be
sent ahead, ``p(n / 2) + t`` more passes before each of the two batches. Source: ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import Returns

MOST_SPREAD = 3.0
"""With several workers, no batch is sent ahead if the time of the batch before it has a standard deviation of
more than this many times the transport. In simulations, 5 and more increased tail latencies."""


class ClosedLoop(NamedTuple):
    """The clients of an API that wait for their responses, when a batch has just ended.

    The workers get no other requests, and all these requests may share batches.
    """

    rows: float
    """Rows (or their cost) that are queued, at workers, or expected from recently answered clients."""
    mean_rows: float
    """Rows (or cost) of an average request among the last arrivals; more than 0."""
    workers: int
    """Healthy workers; at least 1."""
    estimate: Estimate
    """Estimate of the batch time in an average worker."""
    alone: Estimate
    """Estimate for a batch that is not prepared while another runs."""
    transport_s: float
    """Average seconds that a batch spends on the way to the worker and back."""
    sends_ahead: bool
    """True if batches may be sent ahead, behind batches whose end is certain."""
    returns: Returns
    """Which answered clients are expected back, and when."""


def group_rows(loop: ClosedLoop, *, limit_rows: float, take_turns: bool) -> float:
    """Return the rows of a group if clients should take turns; infinity if not.

    ``take_turns`` is True if clients take turns now. A group has whole requests of average size; if the
    number of requests is odd, one is left over for the next group.
    """
    rows = loop.rows / loop.workers
    # Sums of costs are not exact.
    requests = math.floor(rows / loop.mean_rows / 2 + 1e-6)
    away_s, half_away_s = loop.returns.group_times.whole_and_half(rows) if rows > 0 else (0.0, 0.0)
    if not away_s or rows > limit_rows or requests < 4:
        return math.inf
    half_s, alone_s = loop.estimate.seconds(rows / 2), loop.alone.seconds(rows / 2)
    transport_s = loop.transport_s
    together_s = loop.alone.seconds(rows) + transport_s + away_s
    early_s = MOST_SPREAD * transport_s + alone_s - half_s
    is_certain = loop.workers == 1 or loop.estimate.spread * half_s <= early_s
    between_s = 0.0 if loop.sends_ahead and is_certain else transport_s + alone_s - half_s
    in_turns_s = max(2 * (half_s + between_s), alone_s + transport_s + half_away_s)
    # Groups that form and dissolve again and again gain nothing, so less gain is enough to continue.
    gain = 0.02 if take_turns else 0.05
    return requests * loop.mean_rows if in_turns_s < (1 - gain) * together_s else math.inf
