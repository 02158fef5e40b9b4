"""Records the recent past of each API at almost no cost; statistics are computed only on request.

The recorder keeps the latest batches and, every few seconds, a copy of the counts behind ``/metrics``. Recent
counts are the difference between the current counts and those of half a minute ago.
"""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from uncork_dispatcher import ApiSample, Batch, BatchStatus, Estimate, longest_queued_s
from uncork_dispatcher.actions import Shed
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.metrics import ApiTally, Metrics
from uncork_gateway.telemetry.recent import WINDOW_S, Recent

_STEP_S = WINDOW_S / 10
_SAMPLE_S = 1.0
# The mean time of fewer batches is chance.
_ENOUGH_BATCHES = 20
# Earlier estimates are dropped when the largest batch behind the estimate has grown by this factor.
_GROWTH = 1.5
_NONE = ApiTally()


class _Snapshot(NamedTuple):
    """The totals of an API at one time."""

    time: float
    tally: ApiTally
    arrived_rows: float
    bulk_tally: ApiTally
    bulk_rows: float


class Recorded:
    """The recorded snapshots of one API, and its displayed estimate.

    The estimate is the mean over about the last window; recent values count more. The first values count
    equally, so that a wrong first value does not persist. An estimate from much larger batches replaces
    earlier estimates, which only extrapolated to such sizes.
    """

    def __init__(self) -> None:
        self.last_event = -math.inf
        self.running = 0
        self.sample_due = -math.inf
        self.copy_due = -math.inf
        self.estimate: Estimate | None = None
        """None before the first."""
        self.snapshots: deque[_Snapshot] = deque(maxlen=math.ceil(WINDOW_S / _STEP_S) + 2)
        self._estimates = 0
        self._estimated = 0.0

    def add_estimate(self, estimate: Estimate, *, now: float) -> None:
        """Add an estimate of the dispatcher to the displayed one."""
        if self.estimate is not None and estimate.earned_rows > _GROWTH * self.estimate.earned_rows:
            self._estimates = 0
        self._estimates += 1
        share = max(1 / self._estimates, 1 - math.exp(2 * (self._estimated - now) / WINDOW_S))
        self._estimated = now
        before = self.estimate or estimate
        self.estimate = Estimate(
            before.intercept_s + share * (estimate.intercept_s - before.intercept_s),
            before.slope_s + share * (estimate.slope_s - before.slope_s),
            before.spread + share * (estimate.spread - before.spread),
            estimate.earned_rows,
        )

    def base(self, now: float) -> _Snapshot | None:
        """Return the snapshot at the beginning of the window, if there is one.

        It was taken before anything new was counted, so the first that is young enough misses nothing recent.
        """
        return next((past for past in self.snapshots if past.time >= now - WINDOW_S - _STEP_S), None)


class Recorder:
    """A dispatcher's observer that records the recent past. Register it before ``metrics``.

    Reading it more or less often does not change the values.

    Args:
        clock: returns monotonic seconds, as for the dispatcher.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        sample: Callable[[str], ApiSample],
        index_of: Callable[[int], int] = lambda worker: worker,
        batches: FinishedBatches,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._sample = sample
        self._index_of = index_of
        self._clock = clock
        self._apis: defaultdict[str, Recorded] = defaultdict(Recorded)
        self._batches = batches
        self._prefix = prefix
        metrics.watch_answers(self._note)

    def recent(self, api: str, now: float) -> Recent:
        """Return the recent counts of an API; ``now`` is the clock's time."""
        known, tally, sample = self._apis[api], self._metrics.api(api), self._sample(api)
        base = known.base(now) or _Snapshot(now, tally, sample.arrived_rows, _NONE, 0.0)
        counts, arrived_rows = tally.since(base.tally), sample.arrived_rows - base.arrived_rows
        return Recent(now - base.time, counts, arrived_rows, _estimate(known, tally, sample))

    def recent_bulk(self, api: str, now: float) -> Recent:
        """Return the recent counts of an API's second class."""
        tally, sample = self._metrics.bulk(api), self._sample(api)
        base = self._apis[api].base(now) or _Snapshot(now, _NONE, 0.0, tally, sample.bulk_rows)
        counts = tally.since(base.bulk_tally)
        return Recent(now - base.time, counts, sample.bulk_rows - base.bulk_rows, None)

    def classes(self, api: str) -> tuple[str, str] | None:
        return self._metrics.classes(api)

    def forget(self, api: str) -> None:
        self._apis.pop(api, None)

    # The dispatcher's observer

    def batch_started(self, batch: Batch[Any]) -> None:
        self._note(batch.api, leaving_rows=batch.rows).running += 1

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        ended = batch.started + batch.seconds
        self._note(batch.api, ended).running -= 1
        self._batches.add(
            (
                ended,
                self._prefix + batch.api,
                batch.count,
                batch.rows,
                len(batch.requests),
                batch.reason,
                longest_queued_s(batch) * 1000,
                batch.predicted_s * 1000,
                batch.seconds * 1000,
                status == "worked",
                self._index_of(batch.worker),
            )
        )

    def request_shed(self, shed: Shed) -> None:
        self._note(shed.api)

    def _note(self, api: str, now: float | None = None, *, leaving_rows: float = 0.0) -> Recorded:
        """Take a sample if due, before a new event at ``now`` is counted, and return the API's record.

        ``leaving_rows`` is the number of rows that have just left the queue.
        """
        known = self._apis[api]
        now = self._clock() if now is None else now
        if now >= known.sample_due:
            known.sample_due = now + _SAMPLE_S
            self._take_sample(api, known, now, leaving_rows)
        known.last_event = now
        return known

    def _take_sample(self, api: str, known: Recorded, now: float, leaving_rows: float) -> None:
        """Add the current estimate to the smoothed one, and take a snapshot if due."""
        sample = self._sample(api)
        whole = _with_transport(sample)
        if whole is not None:
            known.add_estimate(whole, now=now)
        if now < known.copy_due:
            return
        known.copy_due = now + _STEP_S
        arrived_rows = sample.arrived_rows
        if not known.running and not sample.bulk_rows and now - known.last_event > _STEP_S:
            # After a silence, everything queued has arrived since.
            arrived_rows -= sample.queued_rows + leaving_rows
        tally, has_classes = self._metrics.api(api).copy(), self._metrics.classes(api) is not None
        bulk = self._metrics.bulk(api).copy() if has_classes else _NONE
        known.snapshots.append(_Snapshot(now, tally, arrived_rows, bulk, sample.bulk_rows))


def _with_transport(sample: ApiSample) -> Estimate | None:
    """Return the estimate with transport time added; None if too few batches have run."""
    estimate = sample.estimate
    if not estimate.earned_rows:
        return None
    return estimate._replace(intercept_s=estimate.intercept_s + sample.transport_s)


def _estimate(known: Recorded, now: ApiTally, sample: ApiSample) -> Estimate | None:
    """Return the displayed estimate. After an idle time, it rests on the last batches, however old."""
    smooth = known.estimate or _with_transport(sample)
    if smooth is None or not known.snapshots:
        return smooth
    then = known.snapshots[0].tally
    batches = now.endings["worked"] - then.endings["worked"]
    if batches < _ENOUGH_BATCHES:
        return smooth
    rows, seconds = now.worked_rows - then.worked_rows, now.worked_s - then.worked_s
    return calibrated(smooth, batches=batches, rows=rows, seconds=seconds)


def calibrated(estimate: Estimate, *, batches: int, rows: float, seconds: float) -> Estimate:
    """Scale the estimate to predict ``seconds`` in total for ``batches`` with ``rows`` rows in total.

    The dispatcher's own estimate gives outliers little weight, so it would not match the displayed means.
    """
    predicted_s = batches * estimate.intercept_s + rows * estimate.slope_s
    scale = seconds / predicted_s if predicted_s > 0 else 1.0
    return estimate._replace(intercept_s=scale * estimate.intercept_s, slope_s=scale * estimate.slope_s)
