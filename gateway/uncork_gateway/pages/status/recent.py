"""The recent past of one api. No clock, no I/O."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from uncork_dispatcher import Estimate
from uncork_gateway.telemetry.metrics import Distribution

WINDOW_S = 30.0
"""Length of the recent past. A window may be a tenth longer."""

# Rates, means and percentiles of fewer requests than these, or of a shorter time, are chance.
ENOUGH_REQUESTS = 20
_ENOUGH_S = 1.0
_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 400, 500


class Recent(NamedTuple):
    """Counts of one api in its window.

    Counts and distributions are those of :class:`ApiTally`. Rows are their cost, where the api gives one.

    Attributes:
        seconds: how long the window is: :data:`WINDOW_S`, less if nothing was heard before that.
        arrived_rows: also those that were refused.
        released_rows: of all batches that were released.
        ran: how many requests were in a batch that ended; ``ran_s`` is how long they ran, all together.
        estimate: smoothed, with the way to the worker and back, and scaled to what the last batches took;
            None if too few have run.
    """

    seconds: float
    statuses: Counter[int]
    errors: Counter[int]
    releases: Counter[str]
    sheds: Counter[str]
    duration: Distribution
    queue_wait: Distribution
    batch_requests: Distribution
    batch_duration: Distribution
    arrived_rows: float
    released_rows: float
    ran: int
    ran_s: float
    estimate: Estimate | None

    # Answers

    @property
    def requests(self) -> int:
        """Answered, with whatever status."""
        return self.statuses.total()

    @property
    def is_few(self) -> bool:
        """Whether rates, means and percentiles would be chance."""
        return self.requests < ENOUGH_REQUESTS or self.seconds < _ENOUGH_S

    @property
    def client_errors(self) -> int:
        """Answers 4xx, also those of clients that had left."""
        return self._answers_between(_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR)

    @property
    def answered(self) -> int:
        """Answers other than 4xx, which are the client's doing."""
        return self.requests - self.client_errors

    @property
    def failed(self) -> int:
        """Answers 5xx that are no refusals."""
        return self.errors.total()

    @property
    def refused(self) -> int:
        """Requests that were not executed, because of load or for want of workers."""
        return max(0, self._answers_between(_FIRST_SERVER_ERROR, math.inf) - self.failed)

    @property
    def error_share(self) -> float:
        """Errors by answers; 0 without an answer."""
        return self.failed / self.answered if self.answered else 0.0

    @property
    def refused_share(self) -> float:
        """Refusals by answers; 0 without an answer."""
        return self.refused / self.answered if self.answered else 0.0

    @property
    def refused_for_load(self) -> float:
        """Share of the answers that were refusals because too much came."""
        because = self.sheds["deadline"] + self.sheds["queue_full"]
        return self.refused_share * because / self.sheds.total() if because else 0.0

    def _answers_between(self, first: int, end: float) -> int:
        return sum(times for status, times in self.statuses.items() if first <= status < end)

    # Traffic

    @property
    def rate(self) -> float:
        """Rows that arrived per second; 0 if there were too few to tell."""
        return 0.0 if self.is_few else self.arrived_rows / self.seconds

    @property
    def rows_per_request(self) -> float:
        """Mean; 1 if no request was released."""
        requests = self.batch_requests.sum
        return self.released_rows / requests if requests > 0 and self.released_rows > 0 else 1.0

    @property
    def gap_s(self) -> float:
        """Between two requests, on average; infinite if none came."""
        return self.rows_per_request / self.rate if self.rate > 0 else math.inf

    @property
    def batches(self) -> int:
        """Those that were released."""
        return self.releases.total()

    @property
    def mean_requests(self) -> float:
        """In a batch; 0 without one."""
        return self.batch_requests.mean

    @property
    def mean_rows(self) -> float:
        """In a batch; 0 without one."""
        return self.released_rows / self.batches if self.batches else 0.0

    def share_of_releases(self, reason: str) -> float:
        """Share of the batches that were released for a reason."""
        return self.releases[reason] / self.batches if self.batches else 0.0

    # Time

    @property
    def p99_s(self) -> float:
        """From request to reply; 0 without one."""
        return self.duration.quantile(0.99)

    @property
    def queue_s(self) -> float:
        """Mean time of a request in the queue."""
        return self.queue_wait.mean

    @property
    def run_s(self) -> float:
        """Mean time of a request with its batch."""
        return self.ran_s / self.ran if self.ran else 0.0

    @property
    def transport_s(self) -> float:
        """The rest of the mean time from request to reply."""
        return max(0.0, self.duration.mean - self.queue_s - self.run_s)
