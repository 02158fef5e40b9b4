"""The recent counts of one API, and statistics derived from them. No clock, no I/O."""

import math
from typing import NamedTuple

from uncork_dispatcher import Estimate, Reason
from uncork_gateway.telemetry.metrics import FIRST_CLIENT_ERROR, FIRST_SERVER_ERROR, ApiTally

WINDOW_S = 30.0
"""Length of the window of recent counts. A window may be a tenth longer."""

# Rates, means and percentiles over fewer requests, or a shorter time, are chance.
ENOUGH_REQUESTS = 20
_ENOUGH_S = 1.0


class Recent(NamedTuple):
    """Counts of one API in its window. If the API defines a cost, "rows" are units of cost.

    Attributes:
        seconds: the length of the window: :data:`WINDOW_S`, or less after an idle time.
        counts: the counts, without those for Triton's statistics.
        arrived_rows: the rows that arrived, including refused requests.
        estimate: the displayed estimate: smoothed, with transport to the worker and back, and scaled to
            recent batches; None if too few have run.
    """

    seconds: float
    counts: ApiTally
    arrived_rows: float
    estimate: Estimate | None

    # Answers

    @property
    def requests(self) -> int:
        """The number of responses with any status."""
        return self.counts.statuses.total()

    @property
    def is_few(self) -> bool:
        """True if there are too few requests for meaningful rates, means and percentiles."""
        return self.requests < ENOUGH_REQUESTS or self.seconds < _ENOUGH_S

    @property
    def client_errors(self) -> int:
        """The number of 4xx responses, including requests whose client disconnected."""
        statuses = self.counts.statuses.items()
        return sum(times for status, times in statuses if FIRST_CLIENT_ERROR <= status < FIRST_SERVER_ERROR)

    @property
    def answered(self) -> int:
        """The number of responses other than 4xx."""
        return self.requests - self.client_errors

    @property
    def failed(self) -> int:
        """The number of 5xx responses that are not refusals."""
        return self.counts.errors.total()

    @property
    def refused(self) -> int:
        """The number of requests not executed, because of load or for lack of workers."""
        return self.counts.sheds.total()

    @property
    def coalesced(self) -> int:
        """The number of requests that got the response to an identical one."""
        return min(self.counts.coalesced, self.requests)

    @property
    def error_share(self) -> float:
        """Errors per response; 0 without responses."""
        return self.failed / self.answered if self.answered else 0.0

    @property
    def refused_share(self) -> float:
        """Refusals per response; 0 without responses."""
        return self.refused / self.answered if self.answered else 0.0

    @property
    def refused_for_load(self) -> float:
        """The share of responses that were refusals because of load."""
        because = self.counts.sheds["deadline"] + self.counts.sheds["queue_full"]
        return because / self.answered if because else 0.0

    # Traffic

    @property
    def rate(self) -> float:
        """Arriving rows per second; 0 if there are too few requests."""
        return 0.0 if self.is_few else self.arrived_rows / self.seconds

    @property
    def rows_per_request(self) -> float:
        """The mean rows of a request, in units of cost if defined; 1 if no request was released."""
        requests = self.counts.batch_requests.sum
        return self.counts.released_rows / requests if requests > 0 and self.counts.released_rows > 0 else 1.0

    @property
    def counted_rows_per_request(self) -> float:
        """The mean number of rows of a request, even if the API defines a cost; 0 if none was released."""
        requests = self.counts.batch_requests.sum
        return self.counts.batch_rows.sum / requests if requests > 0 else 0.0

    @property
    def gap_s(self) -> float:
        """The mean time between two arrivals, in seconds; infinite without arrivals."""
        return self.rows_per_request / self.rate if self.rate > 0 else math.inf

    @property
    def batches(self) -> int:
        return self.counts.releases.total()

    @property
    def mean_requests(self) -> float:
        """The mean number of requests in a batch; 0 without batches."""
        return self.counts.batch_requests.mean

    @property
    def mean_rows(self) -> float:
        """The mean number of rows in a batch; 0 without batches."""
        return self.counts.released_rows / self.batches if self.batches else 0.0

    def share_of_releases(self, reason: Reason) -> float:
        return self.counts.releases[reason] / self.batches if self.batches else 0.0

    # Time

    @property
    def p99_s(self) -> float:
        """The 99th percentile of latency, in seconds; 0 without responses."""
        return self.counts.duration.quantile(0.99)

    @property
    def queue_s(self) -> float:
        """The mean time of a request in the queue, in seconds."""
        return self.counts.queue_wait.mean

    @property
    def run_s(self) -> float:
        """The mean time of a request in its batch, in seconds."""
        return self.counts.ran_s / self.counts.ran if self.counts.ran else 0.0

    @property
    def transport_s(self) -> float:
        """The mean time of a request outside queue and batch, in seconds."""
        return max(0.0, self.counts.duration.mean - self.queue_s - self.run_s)
