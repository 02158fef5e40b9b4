"""Remembers the recent past, for almost nothing: what nobody asks for is not computed.

It keeps the last batches as they ended, and now and then a copy of the tallies that ``/metrics`` shows: what
is recent is the difference between the tallies now and those of a while ago.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from uncork_dispatcher import BatchFacts, Ending, ShedReason, Start
from uncork_gateway.metrics import ApiTally, Distribution, Metrics
from uncork_gateway.status.document import Batch

WINDOW_S = 30.0
"""What is recent. Up to a tenth more may be in it."""

_STEP_S = WINDOW_S / 10
_BATCHES = 2000


class Recent(NamedTuple):
    """What was counted of one api in the last ``seconds``, the measures of :class:`ApiTally`.

    ``run_s`` is how long requests ran with their batches, all together, and ``ran`` how many they were.
    """

    seconds: float
    statuses: Counter[int]
    releases: Counter[str]
    sheds: Counter[str]
    duration: Distribution
    queue_wait: Distribution
    batch_rows: Distribution
    batch_requests: Distribution
    batch_duration: Distribution
    ran: int
    run_s: float


class _Past(NamedTuple):
    """The tally of an api at a time."""

    time: float
    tally: ApiTally
    ran: int
    run_s: float


@dataclass(slots=True)
class _Api:
    """What is remembered of one api; ``due`` is when the next copy of its tally is."""

    due: float = -math.inf
    ran: int = 0
    run_s: float = 0.0
    pasts: deque[_Past] = field(default_factory=lambda: deque(maxlen=math.ceil(WINDOW_S / _STEP_S) + 2))


# A batch that ended: a bare tuple, as names would cost as much as all the rest. When it ended, its api, rows,
# cost and requests, why it was released, how long it was held, was to take and took, whether it worked, and
# its worker.
_Ended = tuple[float, str, int, float, int, str, float, float, float, bool, int]


class Recorder:
    """The observer of a dispatcher that remembers. It must be told before ``metrics`` is.

    Args:
        metrics: what counts.
        index_of: what the number of a worker is called in :class:`Batch`.
        clock: seconds, as the dispatcher's.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        index_of: Callable[[int], int] = lambda worker: worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._index_of = index_of
        self._clock = clock
        self._apis: dict[str, _Api] = {}
        self._batches: deque[_Ended] = deque(maxlen=_BATCHES)
        self._number = 0

    def batches_after(self, number: int) -> list[Batch]:
        """The batches that ended after the one of a number, the last 2000 at most; the oldest first."""
        # The number of each is its place, counted from the first that ever ended.
        kept = len(self._batches)
        new = max(0, min(self._number - number, kept))
        epoch, first = time.time() - self._clock(), self._number - new + 1
        ended = islice(self._batches, kept - new, None)
        return [_batch(place, epoch, one) for place, one in enumerate(ended, first)]

    def recent(self, api: str) -> Recent:
        """What was counted of an api lately."""
        now = self._clock()
        known = self._note(api, now)
        tally = self._metrics.api(api)
        since = now - WINDOW_S - _STEP_S
        # A copy is made before something new is counted: the first that is young enough lacks nothing recent.
        base = next((past for past in known.pasts if past.time >= since), _past(now, tally, known))
        return Recent(
            now - base.time,
            tally.statuses - base.tally.statuses,
            tally.releases - base.tally.releases,
            tally.sheds - base.tally.sheds,
            tally.duration.since(base.tally.duration),
            tally.queue_wait.since(base.tally.queue_wait),
            tally.batch_rows.since(base.tally.batch_rows),
            tally.batch_requests.since(base.tally.batch_requests),
            tally.batch_duration.since(base.tally.batch_duration),
            known.ran - base.ran,
            known.run_s - base.run_s,
        )

    def watch(self, api: str) -> None:
        """Remember what is counted of an API from now on, not only from its first batch on."""
        self._note(api, self._clock())

    def forget(self, api: str) -> None:
        """Drop what was counted of an API."""
        self._apis.pop(api, None)

    # The dispatcher's observer

    def batch_started(self, start: Start, rows: int, held_s: Sequence[float]) -> None:
        """A batch was released."""
        self._note(start.api, self._clock())

    def batch_ended(self, batch: BatchFacts, ending: Ending) -> None:
        """Keep what is known of it."""
        start, rows, started, seconds, waited_s = batch
        ended, requests = started + seconds, len(start.requests)
        api = self._note(start.api, ended)
        api.ran += requests
        api.run_s += requests * seconds
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

    def _note(self, api: str, now: float) -> _Api:
        """Something is about to be counted: copy the tally if it is time."""
        known = self._apis.get(api)
        if known is None:
            known = self._apis[api] = _Api()
        if now >= known.due:
            known.due = now + _STEP_S
            known.pasts.append(_past(now, self._metrics.api(api), known))
        return known


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


def _past(now: float, tally: ApiTally, known: _Api) -> _Past:
    return _Past(now, tally.copy(), known.ran, known.run_s)
