"""The default policy: release when the goal asks for it, or when waiting is no longer worth it.

With no busy worker there is nothing to wait for: holding never pays with one worker and open traffic
(within 1 % of the optimum in every case solved). With busy workers, taking everything whenever one of
them is idle drives the workers into phase: one large batch, then tiny ones. Holding an idle worker a
little keeps batches even. The balance rule releases when this batch would be no smaller than the
average of those that follow before the k-th busy worker returns, for every k::

    n >= rate * (F_k - now) / (m + k - 1)

with ``n`` rows held, ``m`` idle workers, ``F_k`` the predicted finish of the k-th busy one, and the learned
arrival rate. It minimises ``n * hold + integral of later arrivals' waits`` (equal gaps between releases).

Source: headway control of buses (Daganzo 2009) applied to batch servers. Deviations, where the rule
would lose: no hold when the slope dominates (workers then gain little from larger batches, and an idle
one is capacity lost) or when batch times scatter so much that ``F_k`` means little; and never beyond the
moment from which the earliest deadline can still be met.
"""

from __future__ import annotations

from uncork_dispatcher.policy import BatchDone, Hold, Release, View

# Share of the workers' time that is pure per-row work, above which an idle worker is not held.
_SCARCE = 0.6
_NOISY = 0.3
# Deadlines are met with this much to spare, for what the estimate does not see.
_MARGIN_S = 0.001


class CorkPolicy:
    """The adaptive rule described at the top of this file."""

    def __init__(self, *, limit_rows: int) -> None:
        self.limit_rows = limit_rows

    def decide(self, view: View) -> Release | Hold:
        """Release when full, due, or not worth waiting; else hold until the first of these."""
        if view.full:
            return Release(self.limit_rows, "full")
        if not view.busy_until:
            return Release(self.limit_rows, "idle")
        # One more row would have to fit as well, otherwise waiting for it is pointless.
        latest = view.deadline - view.estimate.upper(view.rows + 1) - _MARGIN_S
        if latest <= view.now:
            return Release(self.limit_rows, "deadline")
        balanced = self._balanced_at(view)
        if balanced <= view.now:
            return Release(self.limit_rows, "not_worth_waiting")
        return Hold(min(balanced, latest))

    def observe(self, done: BatchDone) -> None:
        """Nothing to learn beyond what the core estimates for every policy."""

    @staticmethod
    def _balanced_at(view: View) -> float:
        """When releasing ``view.rows`` rows keeps batches even, if nobody else arrives until then."""
        workers = view.idle_workers + len(view.busy_until)
        scarce = view.rate * view.estimate.slope_s / workers > _SCARCE
        if scarce or view.rate <= 0 or view.estimate.spread > _NOISY:
            return view.now
        return max(
            finish - view.rows * (view.idle_workers + k) / view.rate
            for k, finish in enumerate(view.busy_until)
        )
