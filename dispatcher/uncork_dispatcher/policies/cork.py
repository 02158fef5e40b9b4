"""The default policy: hold while the delay that a hold saves exceeds the delay that it causes.

While a worker is idle, a hold delays the queued requests, but requests that arrive during the hold need not
wait for a later batch. Below, ``n`` rows are queued, ``m`` of ``W`` workers are idle, ``F_k`` is the
predicted finish of the k-th busy worker, a batch takes ``s(n) = a + b * n``, new clients bring ``rate`` rows
per second, and ``x(d)`` rows of answered clients are expected back within ``d`` seconds.

``gap`` is the time from a release now to the next one, if releases are spread evenly: the largest of ``(F_k -
now) / releases`` over the busy workers, and ``s(n) / W``, the batch's own end, with only the rows whose
lengths may share it. ``releases`` counts each idle worker once for each batch that it finishes before
``F_k``. A hold for ``d`` seconds lasts ``h`` seconds on average, because it ends early if the expected rows
have arrived::

    h      = d * x / (x + 1)  for x = x(d) > 1,  d * (1 - x / 2)  otherwise
    saved  = (rate * d + x(d)) * (gap - h) / h
    delayed = rate * (gap - d) + x(gap) - x(d)     where the batch's own end is next, else 0
    price  = spread * n* * (1 + rho) / (1 - rho)   where a busy worker is next, else 0
    hold while  n < saved - delayed - price

Each row that arrives during the hold saves ``gap - h``; each queued row loses ``h``. The last of ``x`` random
moments in ``d`` lies at ``d * x / (x + 1)``; if less than one row is expected, it arrives after ``d / 2`` on
average, or never. ``delayed`` counts the rows behind this batch, which wait ``h`` longer: with one worker and
independent arrivals they cancel ``saved``. ``price`` allows for batch times that scatter: capacity that is
lost now is missing later, with ``rho = load * b / W`` and ``n* = load * a / (W * (1 - rho))``, the smallest
average batch with which the workers keep up. ``n`` counts every request as one of average size: a small
request loses as much by a hold as any other.

The policy holds for the ``d`` with the largest right side. Candidates are the times at which groups of
answered clients are complete; with several workers, or if a busy worker is next, ``gap / 4`` and ``gap /
2``, where ``h = d``; and, if a busy worker is next, ``d`` close to 0, where the right side is ``rate * gap -
price``, repeated until ``gap`` is no more than ``s(n) / W``. A hold ends when ``(right side + k * n * r) /
(1 + k * r)`` rows are queued, with ``r = (gap - h) / h`` and ``k`` the share of the arrivals that were
expected back.

With one worker, two groups of clients may alternate for ever, each too late for the other. Merging them pays
while ``d < a``, so ``r`` is then at least 1, unless the groups should take turns (``loop_plan.py``).

Share. If more rows are queued than one worker should take, release only its share. ``T_j`` are the times at
which batches can start, at least the steady gap ``s(n*) / W`` apart as far as clients are new. Rows are dealt
so that ``2 * b * n_j + T_j`` is equal over this worker and the next ones, as many as make the share smallest.
This minimizes waiting plus execution over all of them. Of many workers, only some are considered.

Goal. Never hold beyond the last moment at which a release meets the earliest deadline with margin. Sources:
even releases are the headway control of buses (Daganzo 2009); the rest is ours.
"""

from __future__ import annotations

import math
from functools import cache

from mypy_extensions import mypyc_attr

from uncork_dispatcher.loop_plan import ClosedLoop, group_rows
from uncork_dispatcher.policies.base import MARGIN, Hold, HoldReason, Policy, Release, View, register

# Workers up to this place are all looked at: the soonest to be free matter most.
_EACH = 8


Wait = tuple[float, float, HoldReason]
"""A possible hold: its length in seconds if nothing arrives, the rows that end it, and its reason."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CorkPolicy(Policy):
    """The rule at the top of this file. ``benchmarks/ablation.py`` varies its parts."""

    rank = 0
    plans = True

    def decide(self, view: View) -> Release | Hold:
        """Release a full or due queue, or one that a hold does not pay for; otherwise hold it."""
        if view.rows >= self.complete_rows:
            return Release(self.complete_rows, "not_worth_waiting")
        if view.full:
            return Release(self.limit_rows, "full")
        workers = view.idle_workers + len(view.busy_until)
        share = self._share(view, workers)
        if share < view.rows:
            return Release(share, "not_worth_waiting")
        rows = view.requests * view.mean_rows
        wait_s, ends_at, reason = self._best(view, workers, rows)
        until = view.now + wait_s
        if until <= view.now:
            return Release(self.limit_rows, "not_worth_waiting" if view.busy_until else "idle")
        # One more request like the queued ones must fit as well, otherwise waiting for it is pointless.
        next_rows = view.rows * (1 + 1 / view.requests)
        latest = view.deadline - view.slowdown * view.estimate.upper(next_rows) - MARGIN * view.patience_s
        if latest <= view.now:
            return Release(self.limit_rows, "deadline")
        if latest < until:
            return Hold(latest, "goal")
        per_row_s = view.slowdown * (view.estimate.upper(1.0) - view.estimate.upper(0.0))
        in_time = (latest - view.now) / per_row_s if per_row_s > 0 else math.inf
        most = min(view.rows + min(ends_at - rows, in_time), share, self.complete_rows)
        return Hold(until, reason, most)

    def plan(self, loop: ClosedLoop | None) -> None:
        """Let clients take turns in two groups if that saves time."""
        take_turns = self.complete_rows < math.inf
        self.complete_rows = (
            group_rows(loop, limit_rows=self.limit_rows, take_turns=take_turns) if loop else math.inf
        )

    def _best(self, view: View, workers: int, rows: float) -> Wait:
        """Return the hold that pays up to the most queued rows; 0 s if none pays with ``rows`` rows."""
        own_s = view.estimate.seconds(view.batch_rows) / workers
        gap, releases = self._gap(view, workers, own_s)
        own = not releases
        rate, price = view.new_client_rate, 0.0 if own else _price(view, workers)
        best: Wait = (0.0, rows, "balance")
        most = rows
        if not own and rate * gap - price > rows:
            most = rate * gap - price
            least = max((rows + price) / rate, own_s)
            best = releases * (gap - least), most, "balance"
        expected_by_gap = view.returns.expected_rows(gap, now=view.now) if own else 0.0
        times = view.returns.return_times(now=view.now)
        parts = [gap / 4, gap / 2] if workers > 1 or not own else []
        for place, delay_s in enumerate([*times, *parts]):
            if not 0 < delay_s < gap:
                continue
            expected, hold_s = view.returns.expected_rows(delay_s, now=view.now), delay_s
            if place < len(times):
                hold_s *= expected / (expected + 1) if expected > 1 else 1 - expected / 2
            ratio = (gap - hold_s) / hold_s
            if delay_s < view.estimate.intercept_s and workers == 1 and self.complete_rows == math.inf:
                ratio = max(ratio, 1 / ratio)
            coming = rate * delay_s + expected
            delayed = rate * (gap - delay_s) + expected_by_gap - expected if own else 0.0
            pays_up_to = coming * ratio - delayed - price
            if pays_up_to > most:
                most = pays_up_to
                returning = expected / coming * ratio if coming else 0.0
                ends_at = (pays_up_to + returning * rows) / (1 + returning)
                best = delay_s, ends_at, "returns" if place < len(times) else "balance"
        return best

    def _gap(self, view: View, workers: int, own_s: float) -> tuple[float, int]:
        """Return ``gap``, and the ``releases`` of the busy worker that sets it; 0 if no busy worker does."""
        gap, releases = own_s, 0
        busy_until, idle = view.busy_until, view.idle_workers
        if not busy_until:
            return gap, releases
        least = view.estimate.keep_up_rows(view.load_rate, workers=workers)
        usual_s = view.slowdown * view.estimate.seconds(max(view.rows, min(least, self.limit_rows)))
        if usual_s <= 0:  # nothing is known of the batches before the first has ended
            return gap, releases
        for place in range(idle, min(workers, idle + _EACH)):
            until_s = busy_until[place - idle] - view.now
            times = place * max(1, math.ceil(until_s / usual_s))
            if until_s / times > gap:
                gap, releases = until_s / times, times
        return gap, releases

    def _share(self, view: View, workers: int) -> float:
        """Return this worker's share of the queued and expected rows; infinity for all rows."""
        slope_s, rate = view.estimate.slope_s, view.new_client_rate
        if slope_s <= 0 or workers == 1 or view.load_rate <= 0:
            return math.inf
        batch = max(1.0, min(view.estimate.keep_up_rows(view.load_rate, workers=workers), 1e6))
        apart = min(1.0, rate / view.load_rate) * view.estimate.seconds(batch) / workers
        rows = view.rows + view.returns.expected_rows(view.estimate.seconds(view.rows), now=view.now)
        return_probability = view.returns.delays.return_probability()
        level, least, total_s, before_s, place = 2 * slope_s * rows, math.inf, 0.0, 0.0, 0
        for next_place in _places(workers):
            step, start_s = next_place - place, apart * next_place
            busy = next_place - view.idle_workers
            if busy >= 0:
                start_s = max(start_s, view.busy_until[busy] - view.now)
            if level <= start_s:
                break
            if busy >= 0 and return_probability:
                rows += min(step, busy + 1) * return_probability * view.running_rows(busy)
            # The workers in between start evenly spread.
            total_s += step * start_s - (step - 1) / 2 * (start_s - before_s)
            place, before_s = next_place, start_s
            level = (2 * slope_s * (rows + rate * start_s) + total_s) / (place + 1)
            least = min(least, level)
        return math.inf if least == math.inf else max(1, math.ceil(least / (2 * slope_s) - 0.5))


def _price(view: View, workers: int) -> float:
    """Return ``price``, the cost of idle time in rows; infinity at full load."""
    rho = view.load_rate * view.estimate.slope_s / workers
    if rho >= 1:
        return math.inf
    least = view.estimate.keep_up_rows(view.load_rate, workers=workers)
    return view.estimate.spread * least * (1 + rho) / (1 - rho)


@cache
def _places(workers: int) -> list[int]:
    """Return the places of the workers to consider, in the order in which workers can start.

    Place 0, whose batch starts now, is left out. After place 8, each place is twice the one before; the last
    worker is always included.
    """
    places, place = [], 0
    while place < workers - 1:
        place = min(max(place + 1, 2 * place if place >= _EACH else 0), workers - 1)
        places.append(place)
    return places


register("cork", CorkPolicy)
