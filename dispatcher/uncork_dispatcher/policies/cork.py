"""The default policy: release when the goal requires it, or when waiting no longer pays.

Holding with an idle worker delays the queued requests. It pays when requests that are about to arrive would
otherwise wait longer. Below, ``n`` rows are queued, ``m`` of ``W`` workers are idle, ``F_k`` is the predicted
finish of the k-th busy one, a batch takes ``a + b * n``, and new clients arrive at ``rate``.
``rho = rate * b / W`` is the share of the workers' time that is work per row, and ``n* = rate * a / (W * (1 -
rho))`` the smallest average batch with which they keep up.

1. Balance. Taking everything whenever a worker is idle drives workers into phase: one large batch, then
   tiny ones. With equal gaps between releases until the k-th busy worker is free, the next one is due after
   ``gap = max_k (F_k - now) / (m + k - 1)``. Hold while::

       q + spread * n* * (1 + rho) / (1 - rho)  <  rate * gap     and     q < 1.5 * n*

   ``q`` is ``n``, or the rows of as many average requests, whichever is more: a small request loses as much
   by a hold as any other, and a few large requests bring most of the rows to come.

   An idle worker that is much faster than the k-th busy one counts once for each batch that it finishes
   before. The second term is the price of idle time when batch times scatter: capacity that is lost now is
   missing later, the more so the less slack there is. With no busy worker there is nothing to balance: one
   worker never holds for this reason. Nor does any when capacity is scarce (rho of 0.6 and more).

2. Returns. Clients that were answered together return together (``learning/returns.py``). For each time ``d``
   from now at which a group should be complete, with ``x`` rows expected until then: hold while::

       x * (gap - d)  >  n * h

   that is, while the rows still missing would lose more by missing this batch than the queued rows lose by
   waiting for them. The mean hold ``h`` is ``d * x / (x + 1)``, where the last of ``x`` random moments in
   ``d`` lies. For ``x < 1`` it is ``d * (1 - x / 2)``: the hold ends after ``d / 2`` on average if the row
   arrives, and after ``d`` if it does not. ``gap`` is no less than the ``(a + b * n) / W`` in which the batch
   itself would finish.

   One worker delays the next batch by ``d`` too, and every row that waits for it. For independent arrivals
   that cancels the gain: one worker should never hold for them. They look like returning clients if they
   reuse the connections of a pool. So, with one worker, ``x`` counts the rows beyond independent arrivals,
   ``x - v * rate * d``, where ``v``, at most 1, is the squared coefficient of variation of the time that
   clients stay away: 1 and more for a pool, far below 1 for clients in a closed loop.

   With one worker two groups may alternate for ever, each too late for the other; merging them pays while
   ``d < a``, unless they should take turns (5).

3. Share. When more is queued than one worker should take, release only its share: with ``T_j`` the times at
   which batches can start (idle workers, then ``F_k``, at least the steady gap ``(a + b * n*) / W`` apart as
   far as clients are new), rows are dealt so that ``2 * b * n_j + T_j`` is equal. This minimises
   waiting plus execution over all of them. With ``b = 0`` the share is everything.

With more than nine workers, neither 1 nor 3 looks at each of them. In the order in which workers can start, 1
and the ``gap`` of 2 look at the first eight, at each that is twice as far back as the one before, and at the
last. 3 adds workers in steps that grow likewise, and halves the steps where the share ends.

4. Goal. Never hold beyond the moment from which the earliest deadline is met with margin. When the goal is
   about to bind (the predicted 99th percentile is above 0.6 of it) and a worker is busy, hold until then.

5. Turns. Clients that return together leave the workers idle until they are back. Where that takes longer
   than the fixed part of another batch, they take turns in two groups for each worker (``loop_plan.py``): a
   batch is complete with the rows of one group.

Arrivals. An arrival changes all of these sums a little, and hardly ever ends a hold. So a hold names the rows
with which it would end at once. In 1, with the release gap that counts, that is when ``rate * gap`` rows are
queued; in 2, ``(n + x) * g / (1 + g)`` rows with ``g = (gap - d) / h``, because every row that comes back is
queued and no longer missing; in 3, the share; in 4, when the deadline allows no larger batch; in 5, a group.

Sources: 1 is headway control of buses (Daganzo 2009) for batch servers, with our price of idle time; 2, 3 and
5 are ours; 4 is deferred batch scheduling (Symphony, arXiv 2308.07470) where it pays.
``docs/explanation/dispatcher.md`` explains and measures all of it.
"""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar, NamedTuple

from mypy_extensions import mypyc_attr

from uncork_dispatcher.loop_plan import ClosedLoop, group_rows
from uncork_dispatcher.policies.base import Hold, HoldReason, Policy, Release, View, register

Horizons = list[tuple[float, int]]
"""Seconds until busy workers are free, and the releases from now to then if one is made now."""


# Sums whose ratio is below this are equal: rounding must not change a decision about equal requests.
_EXACT = 1 + 1e-9
# Workers up to this place are all looked at: the soonest to be free matter most.
_EACH = 8


class Wait(NamedTuple):
    """How long it pays to hold if no request arrives, and up to how many queued rows it pays at all."""

    seconds: float
    rows: float


NO_WAIT = Wait(0.0, 0.0)


class Load(NamedTuple):
    """The demand of the traffic on the workers."""

    workers: int
    rho: float
    batch: float
    """The smallest average batch (rows) with which the workers keep up: n*; infinite if there is none."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CorkPolicy(Policy):
    """The adaptive rule described at the top of this file. ``benchmarks/ablation.py`` varies its parts."""

    rank = 0
    plans = True

    # Balance: capacity is scarce above this rho; and a queue of this multiple of n* is never held.
    scarce_rho: ClassVar[float] = 0.6
    enough: ClassVar[float] = 1.5
    # Returns: below this rho, clients that trickle in are looked for within half of the gap.
    trickle_rho: ClassVar[float] = 0.6
    # Goal: the margin of deadlines as a share of the goal, for errors of the estimate.
    margin: ClassVar[float] = 0.02
    # Many workers: those that are looked at stand this many times as far back, in the order in which they can
    # start, as the one looked at before.
    place_ratio: ClassVar[float] = 2.0

    def decide(self, view: View) -> Release | Hold:
        """Release when full, due, or not worth waiting; else hold until the first of these."""
        if view.rows >= self.complete_rows:
            return Release(self.complete_rows, "not_worth_waiting")
        if view.full:
            return Release(self.limit_rows, "full")
        load = _load(view)
        share = self._share(view, load)
        if share < view.rows:
            return Release(share, "not_worth_waiting")
        horizons = self._busy_horizons(view)
        balance = self._for_balance(view, load, horizons)
        returns = self._for_returns(view, load, horizons)
        # If both pay, take the one that allows more arrivals; when it ends, the other is considered again.
        wait = returns if returns.rows >= balance.rows else balance
        until = view.now + wait.seconds
        binds = self._goal_is_binding(view, load)
        if until <= view.now and not binds:
            return Release(self.limit_rows, "not_worth_waiting" if view.busy_until else "idle")
        # One more request like the queued ones must fit as well, otherwise waiting for it is pointless.
        next_rows = view.rows * (1 + 1 / view.requests)
        latest = view.deadline - view.slowdown * view.estimate.upper(next_rows) - self.margin * view.goal_s
        if latest <= view.now:
            return Release(self.limit_rows, "deadline")
        rows = math.inf if binds else wait.rows
        reason: HoldReason = "returns" if wait is returns else "balance"
        if binds or latest < until:
            until, reason = latest, "goal"
        return Hold(until, reason, self._most_rows(view, rows, share, latest, until))

    def plan(self, loop: ClosedLoop | None) -> None:
        """Let clients take turns if that pays."""
        take_turns = self.complete_rows < math.inf
        self.complete_rows = (
            group_rows(loop, limit_rows=self.limit_rows, take_turns=take_turns) if loop else math.inf
        )

    def _most_rows(self, view: View, rows: float, share: float, latest: float, until: float) -> float:
        """Return how many queued rows end a hold: ``rows``, the share, or the deadline's, if that is less."""
        rows = min(rows, self.complete_rows)
        slope_s, left_s = view.estimate.slope_s, until - view.now
        if share < math.inf:
            # The share may fall as busy workers come closer to being free, but by no more than this.
            rows = min(rows, max((view.rows + share) / 2, share - left_s / (2 * slope_s)))
        per_row_s = view.slowdown * (view.estimate.upper(1.0) - view.estimate.upper(0.0))
        if per_row_s > 0:
            rows = min(rows, view.rows + (latest - view.now) / per_row_s)
        return rows

    def _busy_horizons(self, view: View) -> Horizons:
        """Count the releases of idle workers and of those free before, repeatedly of a much faster one."""
        now, idle, busy_until = view.now, view.idle_workers, view.busy_until
        horizons = [
            (busy_until[place - idle] - now, place)
            for place in _places(idle + len(busy_until), self.place_ratio)
            if place >= idle
        ]
        if view.slowdown < 1:
            return [
                (until, releases + self._repeats(view, until, view.running_rows[releases - idle]))
                for until, releases in horizons
            ]
        return horizons

    def _repeats(self, view: View, until: float, rows: float) -> int:
        """Return how many more batches the next idle worker finishes within ``until`` seconds."""
        own_s = view.slowdown * view.estimate.seconds(max(rows, view.rows))
        return max(0, math.ceil(until / own_s) - 1) if own_s > 0 else 0

    def _for_balance(self, view: View, load: Load, horizons: Horizons) -> Wait:
        """Return for how long holding keeps batches even."""
        rate, enough = view.new_client_rate, self.enough * load.batch
        if not horizons or rate <= 0:
            return NO_WAIT
        average = view.requests * view.mean_rows
        rows = average if average > _EXACT * view.rows else view.rows
        if load.rho >= self.scarce_rho or rows >= enough:
            return NO_WAIT
        price = view.estimate.spread * load.batch * (1 + load.rho) / (1 - load.rho)
        seconds, releases = max([(until - (rows + price) * count / rate, count) for until, count in horizons])
        return Wait(seconds, min(view.rows + seconds * rate / releases, enough))

    def _for_returns(self, view: View, load: Load, horizons: Horizons) -> Wait:
        """Return for how long holding for the answered clients pays."""
        times = view.returns.return_times()
        if not times:
            return NO_WAIT
        gap = view.estimate.seconds(view.rows) / load.workers
        if horizons:
            gap = max([gap, *[until / releases for until, releases in horizons]])
            # Clients that trickle in, rather than return in groups, are like new ones: look less far.
            if load.rho < self.trickle_rho:
                times = [*times, gap / 4, gap / 2]
        others, fair = view.idle_workers - 1, math.inf
        if others:
            fair = (view.rows + view.returns.expected_rows(gap)) / (1 + others)
            if view.rows >= fair:
                return NO_WAIT  # the share of the returning clients fits on the other idle workers
        independent_rate = self._independent_rate(view) if load.workers == 1 else 0.0
        best = NO_WAIT
        for delay_s in times:
            if delay_s < gap:
                rows = min(fair, self._pays_up_to(view, load, delay_s, gap, independent_rate))
                if rows > max(view.rows, best.rows):
                    best = Wait(delay_s, rows)
        return best

    def _independent_rate(self, view: View) -> float:
        """Return the rows per second that arrive whether or not clients were answered."""
        return min(1.0, view.returns.squared_variation()) * view.load_rate

    def _pays_up_to(
        self, view: View, load: Load, delay_s: float, gap: float, independent_rate: float
    ) -> float:
        """Return the queued rows that lose as much as the rows expected within ``delay_s`` seconds gain.

        Each row that returns is queued and not expected any more.
        """
        expected = view.returns.expected_rows(delay_s)
        ratio = (gap - delay_s) / self._mean_hold(delay_s, expected)
        if load.workers == 1:
            expected -= independent_rate * delay_s
            if ratio < 1 and delay_s < view.estimate.intercept_s and self.complete_rows == math.inf:
                ratio = 1 / ratio
        return (view.rows + expected) * ratio / (1 + ratio)

    def _mean_hold(self, delay_s: float, expected: float) -> float:
        """Return the mean seconds until ``expected`` rows are back, or ``delay_s`` have passed."""
        return delay_s * (expected / (expected + 1) if expected > 1 else 1 - expected / 2)

    def _share(self, view: View, load: Load) -> float:
        """Return the rows that one worker should take of those queued and those to come."""
        slope_s = view.estimate.slope_s
        if slope_s <= 0 or load.workers == 1 or view.load_rate <= 0:
            return math.inf
        batch = max(1.0, min(load.batch, 1e6))
        apart = min(1.0, view.new_client_rate / view.load_rate) * view.estimate.seconds(batch) / load.workers
        if view.new_client_rate * apart >= view.rows:
            return view.new_client_rate * apart  # each worker after this one starts with as many new rows
        rows = view.rows + view.returns.expected_rows(view.estimate.seconds(view.rows))
        return max(1, math.ceil(self._level(view, load.workers, apart, rows) / (2 * slope_s)))

    def _level(self, view: View, workers: int, apart: float, rows: float) -> float:
        """Return the ``2 * b * n_j + T_j`` at which ``rows`` rows and the expected ones are assigned.

        Adds worker after worker until one starts too late for any. Behind the first eight, the steps grow;
        then they are halved until the last worker that starts in time is found.
        """
        slope_s, idle, busy_until = view.estimate.slope_s, view.idle_workers, view.busy_until
        return_probability = view.returns.return_probability()
        level, total_s, before_s = 2 * slope_s * rows, 0.0, 0.0
        place, step, grows = 0, 1, True
        while place < workers - 1:
            step = min(step, workers - 1 - place)
            ahead = place + step
            start_s, more = apart * ahead, 0.0
            if ahead >= idle:
                start_s = max(start_s, busy_until[ahead - idle] - view.now)
                if return_probability:
                    busy = min(step, ahead - idle + 1)
                    more = busy * return_probability * view.running_rows[ahead - idle]
            if level <= start_s:
                if step == 1:
                    break
                step, grows = step // 2, False
                continue
            # The workers in between start evenly spread.
            total_s += step * start_s - (step - 1) / 2 * (start_s - before_s)
            place, before_s, rows = ahead, start_s, rows + more
            level = (2 * slope_s * (rows + view.new_client_rate * start_s) + total_s) / (place + 1)
            if grows and place >= _EACH:
                step = int(place * self.place_ratio) - place or 1
        return level

    def _goal_is_binding(self, view: View, load: Load) -> bool:
        """Whether some requests will miss the goal unless batches are as large as it allows."""
        if not view.busy_until or load.rho >= 1:
            return False
        batch = view.new_client_rate / view.load_rate * load.batch if view.load_rate else 0.0
        slowest = view.estimate.seconds(batch) / load.workers + view.estimate.seconds(
            batch + 2.33 * math.sqrt(batch)
        )
        return slowest > self.binding * view.goal_s


@cache
def _places(workers: int, ratio: float) -> list[int]:
    """Return the places of the workers to look at, in the order in which workers can start.

    A batch starts now on the one at place 0, which is left out. All are looked at up to place 8; after that,
    each is ``ratio`` times as far back as the one before. The last worker is always among them.
    """
    places, place = [], 0
    while place < workers - 1:
        place = min(max(place + 1, int(place * ratio) if place >= _EACH else 0), workers - 1)
        places.append(place)
    return places


def _load(view: View) -> Load:
    workers = view.idle_workers + len(view.busy_until)
    rho = view.load_rate * view.estimate.slope_s / workers
    batch = view.load_rate * view.estimate.intercept_s / workers / (1 - rho) if rho < 1 else math.inf
    return Load(workers, rho, batch)


register("cork", CorkPolicy)
