"""Whether it pays that the stages of an API's batches overlap, by measurement.

It does not where the stages wait for each other, as Python code does for the GIL. A model of many small
operations then takes several times as long. So the worker compares the time that a batch adds to the work of
the worker with overlap and without, and repeats the comparison now and then.
"""

from uncork_dispatcher.learning.estimator import BatchTimeEstimator

# Batches in a trial, and between two trials. The gateway sends the first few too late for an overlap.
_TRIAL = 8
_SETTLED = 500
# A trial of overlap that does not pay is repeated after twice as many, up to this many: it may be expensive.
_LONGEST = 8_000
PAYS = 0.95
"""Overlap pays if a batch then adds less than this share of its time without."""


class Overlap:
    """Decides for one API from the batches that have run.

    Attributes:
        is_on: whether the next batch should overlap with others.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._pays: bool | None = None
        """The last verdict; None before the first."""
        self._left = _TRIAL
        self._settled = _SETTLED
        self._times = {False: BatchTimeEstimator(), True: BatchTimeEstimator()}

    def observe(self, cost: float, seconds: float, *, has_overlapped: bool) -> None:
        """Learn that a batch of some rows or cost added some seconds to the work of the worker."""
        self._times[has_overlapped].observe(cost, seconds)
        if has_overlapped is not self.is_on:
            return
        self._left -= 1
        if self._left:
            return
        if self.is_on is not self._pays and self._times[True].known_rows is not None:
            self._judge(cost)
        else:
            self.is_on, self._left = not self.is_on, _TRIAL

    def _judge(self, cost: float) -> None:
        """Compare both at the size of the last batch, after a trial."""
        with_overlap, without = (self._times[way].estimate.seconds(cost) for way in (True, False))
        pays = with_overlap < PAYS * without
        is_repeated = self._pays is False and not pays
        self._settled = min(2 * self._settled, _LONGEST) if is_repeated else _SETTLED
        self._pays = self.is_on = pays
        self._left = self._settled
