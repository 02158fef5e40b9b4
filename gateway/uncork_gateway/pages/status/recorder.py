"""Remembers the recent past, for almost nothing: what nobody asks for is not computed.

It keeps the last batches as they ended, and now and then a copy of the tallies that ``/metrics`` shows: what
is recent is the difference between the tallies now and those of a while ago.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from uncork_dispatcher import ApiSample, BatchFacts, BatchStatus, Estimate, ShedReason, Start
from uncork_gateway.pages.status.document import Batch
from uncork_gateway.pages.status.recent import WINDOW_S, Recent
from uncork_gateway.pages.status.smoothing import SmoothEstimate, calibrated
from uncork_gateway.telemetry.metrics import ApiTally, Metrics

_STEP_S = WINDOW_S / 10
_SAMPLE_S = 1.0
_BATCHES = 2000
# The mean time of fewer batches than these says little.
_ENOUGH_BATCHES = 20


@dataclass(slots=True)
class _Sums:
    """Totals of an api that no metric has; ``worked`` are the batches that worked."""

    released_rows: float = 0.0
    ran: int = 0
    ran_s: float = 0.0
    worked: int = 0
    worked_rows: float = 0.0
    worked_s: float = 0.0


class _Past(NamedTuple):
    """The totals of an api at a time."""

    time: float
    tally: ApiTally
    sums: _Sums
    arrived_rows: float


class _Api:
    """The memory of one api."""

    def __init__(self) -> None:
        self.heard = -math.inf
        """When something happened last."""
        self.running = 0
        self.sample_due = -math.inf
        self.copy_due = -math.inf
        self.sums = _Sums()
        self.smooth = SmoothEstimate(WINDOW_S / 2)
        self.pasts: deque[_Past] = deque(maxlen=math.ceil(WINDOW_S / _STEP_S) + 2)


# A batch that ended: a bare tuple, as names would cost as much as all the rest. When it ended, its api, rows,
# cost and requests, why it was released, how long it was held, was to take and took, whether it worked, and
# its worker.
_Ended = tuple[float, str, int, float, int, str, float, float, float, bool, int]


class Recorder:
    """The observer of a dispatcher that remembers. It must be told before ``metrics`` is.

    Its figures do not depend on how often somebody has asked for them.

    Args:
        metrics: what counts.
        sample: totals and beliefs of an api, as the dispatcher has them.
        index_of: what the number of a worker is called in :class:`Batch`.
        clock: seconds, as the dispatcher's.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        sample: Callable[[str], ApiSample],
        index_of: Callable[[int], int] = lambda worker: worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._sample = sample
        self._index_of = index_of
        self._clock = clock
        self._apis: defaultdict[str, _Api] = defaultdict(_Api)
        self._batches: deque[_Ended] = deque(maxlen=_BATCHES)
        self._number = 0
        metrics.watch_answers(lambda api: self._note(api, self._clock()))

    def batches_after(self, number: int) -> list[Batch]:
        """The batches that ended after the one of a number, the last 2000 at most; the oldest first."""
        # The number of each is its place, counted from the first that ever ended.
        kept = len(self._batches)
        new = max(0, min(self._number - number, kept))
        epoch, first = time.time() - self._clock(), self._number - new + 1
        ended = islice(self._batches, kept - new, None)
        return [_batch(place, epoch, one) for place, one in enumerate(ended, first)]

    def recent(self, api: str, now: float) -> Recent:
        """Return the recent counts of an api at ``now``, by the clock."""
        known, tally, sample = self._apis[api], self._metrics.api(api), self._sample(api)
        since = now - WINDOW_S - _STEP_S
        present = _Past(now, tally, known.sums, sample.arrived_rows)
        # A copy is made before something new is counted: the first that is young enough lacks nothing recent.
        base = next((past for past in known.pasts if past.time >= since), present)
        return Recent(
            now - base.time,
            tally.statuses - base.tally.statuses,
            tally.errors - base.tally.errors,
            tally.releases - base.tally.releases,
            tally.sheds - base.tally.sheds,
            tally.duration.since(base.tally.duration),
            tally.queue_wait.since(base.tally.queue_wait),
            tally.batch_requests.since(base.tally.batch_requests),
            tally.batch_duration.since(base.tally.batch_duration),
            sample.arrived_rows - base.arrived_rows,
            known.sums.released_rows - base.sums.released_rows,
            known.sums.ran - base.sums.ran,
            known.sums.ran_s - base.sums.ran_s,
            _estimate(known, sample),
        )

    def forget(self, api: str) -> None:
        """Drop what was counted of an API."""
        self._apis.pop(api, None)

    # The dispatcher's observer

    def batch_started(self, start: Start, rows: int, queued_s: Sequence[float]) -> None:
        """A batch was released."""
        known = self._note(start.api, self._clock(), leaving_rows=start.rows)
        known.running += 1
        known.sums.released_rows += start.rows

    def batch_ended(self, batch: BatchFacts, ending: BatchStatus) -> None:
        """Keep what is known of it."""
        start, rows, started, seconds, waited_s = batch
        ended, requests = started + seconds, len(start.requests)
        known = self._note(start.api, ended)
        known.running -= 1
        sums = known.sums
        sums.ran += requests
        sums.ran_s += requests * seconds
        if ending == "worked":
            sums.worked += 1
            sums.worked_rows += start.rows
            sums.worked_s += seconds
        self._number += 1
        self._batches.append(
            (
                ended,
                start.api,
                rows,
                start.rows,
                requests,
                start.reason,
                waited_s,
                start.predicted_s,
                seconds,
                ending == "worked",
                self._index_of(start.worker),
            )
        )

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """A request was refused."""
        self._note(api, self._clock())

    def _note(self, api: str, now: float, *, leaving_rows: float = 0.0) -> _Api:
        """Take a sample if one is due, as something is about to be counted. Returns the api's memory.

        ``leaving_rows`` are those that have just left the queue.
        """
        known = self._apis[api]
        if now >= known.sample_due:
            known.sample_due = now + _SAMPLE_S
            self._take_sample(api, known, now, leaving_rows)
        known.heard = now
        return known

    def _take_sample(self, api: str, known: _Api, now: float, leaving_rows: float) -> None:
        """Note the estimate, and copy the totals now and then."""
        sample = self._sample(api)
        whole = _with_transport(sample)
        if whole is not None:
            known.smooth.add(whole, now=now)
        if now < known.copy_due:
            return
        known.copy_due = now + _STEP_S
        arrived_rows = sample.arrived_rows
        if not known.running and now - known.heard > _STEP_S:
            # After a silence, all that is queued has come since.
            arrived_rows -= sample.queued_rows + leaving_rows
        tally = self._metrics.api(api).copy()
        known.pasts.append(_Past(now, tally, replace(known.sums), arrived_rows))


def _with_transport(sample: ApiSample) -> Estimate | None:
    """The time from release to reply; None if too few batches have run to tell."""
    estimate = sample.estimate
    if not estimate.earned_rows:
        return None
    return estimate._replace(intercept_s=estimate.intercept_s + sample.transport_s)


def _estimate(known: _Api, sample: ApiSample) -> Estimate | None:
    """The estimate for people. After a silence it is that of the last batches, however long ago they ran."""
    smooth = known.smooth.value or _with_transport(sample)
    if smooth is None or not known.pasts:
        return smooth
    now, then = known.sums, known.pasts[0].sums
    batches = now.worked - then.worked
    if batches < _ENOUGH_BATCHES:
        return smooth
    rows, seconds = now.worked_rows - then.worked_rows, now.worked_s - then.worked_s
    return calibrated(smooth, batches=batches, rows=rows, seconds=seconds)


def _batch(number: int, epoch: float, batch: _Ended) -> Batch:
    ended, api, rows, cost, requests, reason, waited_s, predicted_s, seconds, worked, worker = batch
    return Batch(
        number=number,
        ended=epoch + ended,
        api=api,
        rows=rows,
        cost=cost,
        requests=requests,
        reason=reason,
        waited_ms=waited_s * 1000,
        predicted_ms=predicted_s * 1000,
        actual_ms=seconds * 1000,
        worked=worked,
        worker=worker,
    )
