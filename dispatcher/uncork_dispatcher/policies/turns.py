"""Whether the clients of a closed loop should take turns, in two groups for each worker.

Clients that wait for their answers return together, and until they are back, the worker is idle. In two
groups that take turns, the worker runs the batch of one group while the other is away, and the next batch can
be sent ahead. The price is the fixed part of one more batch. With ``n`` rows of clients for each worker,
batches that take ``a + b * n``, and ``T(n)`` until a group of ``n`` rows is back, each client is answered
once in::

    together:  a + b * n + transport + T(n)
    in turns:  a + b * n / 2 + max(a + b * n / 2, T(n / 2))     if batches are sent ahead

If they are not, ``2 * transport`` is added to the second. Source: ours.
"""

from __future__ import annotations

import math

from uncork_dispatcher.policies.base import MOST_SPREAD, ClosedLoop

# Clients take turns if that should save this share of the time, and go on while it saves the second: groups
# that form and dissolve again and again gain nothing.
_GAIN = 0.07
_GAIN_LEFT = 0.02
# Fewer rows for each worker are not worth two batches.
_FEWEST_ROWS = 8.0
# Clients do not return together if the squared coefficient of variation of their time away is above this, and
# new clients do not wait for answers: they may be no more than this share of the traffic.
_IRREGULAR = 0.5
_NEW_CLIENTS = 0.05


def group_rows(loop: ClosedLoop, *, limit_rows: float, take_turns: bool) -> float:
    """Return the rows of a group if clients should take turns; infinity if not.

    ``take_turns`` says whether they do so now.
    """
    rows = loop.rows / loop.workers
    if not _FEWEST_ROWS <= rows <= limit_rows:
        return math.inf
    away_s, half_away_s = loop.returns.group_s(rows)
    half_rows = math.ceil(rows / 2)
    half_s = loop.estimate.seconds(half_rows)
    together_s = loop.estimate.seconds(rows) + loop.transport_s + away_s
    in_turns_s = half_s + max(half_s, half_away_s)
    is_certain = loop.workers == 1 or loop.estimate.spread * half_s <= MOST_SPREAD * loop.transport_s
    if not (loop.sends_ahead and is_certain):
        in_turns_s += 2 * loop.transport_s
    if not away_s or in_turns_s >= (1 - (_GAIN_LEFT if take_turns else _GAIN)) * together_s:
        return math.inf
    if loop.new_client_rate > _NEW_CLIENTS * loop.load_rate or loop.returns.squared_variation() > _IRREGULAR:
        return math.inf
    return half_rows
