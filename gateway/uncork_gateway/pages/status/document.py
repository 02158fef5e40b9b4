"""The document of ``/status``, which the dashboard shows too.

It describes one moment. Recent figures are those of the API's window. Sentences and advice quote the fields.
Where an API defines a cost, its rows are units of cost.
"""

from typing import Literal

import msgspec

from uncork_dispatcher import Reason, ShedReason
from uncork_dispatcher.learning.measures import Measure
from uncork_gateway.telemetry.metrics import Transport

ApiState = Literal["ok", "degraded", "failing"]
"""By the share of recent requests that failed or were refused: at most 1 %, more, or at least half."""
State = Literal["starting", "ready", "degraded", "failing", "not_ready", "draining"]
"""Whether requests are accepted, and if so the worst state of an API; ``ready`` if all are ``ok``."""
Limit = Literal["nothing", "workers", "goal", "cap"]
"""What keeps an API from answering more, or sooner: too few workers, a goal too short for larger batches, or
the batch limit."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted time of a batch from release to reply: ``intercept_ms + slope_ms * rows``.

    It is smoothed, and scaled to recent batches. The dispatcher's own, which follows every batch, is in
    ``/metrics``.

    Attributes:
        spread: relative standard deviation of batch times around the line.
        rows: the smallest and largest batch sizes that it rests on.
    """

    intercept_ms: float
    slope_ms: float
    spread: float
    rows: tuple[float, float]


class Padding(msgspec.Struct, frozen=True, kw_only=True):
    """How the lengths of rows affect batch times. Lengths are costs; bytes, where the API defines no cost.

    Attributes:
        measure: what batch times depend on: ``sum``, the sum of the costs; ``longest``, rows x largest cost,
            because batches are padded to their longest row; ``bytes`` and ``longest_bytes``, the same of the
            bytes of request bodies.
        share: of the work of about the last 20 batches, the share that was padding; 0 without padding.
        length_limit: the length beyond which rows take no more time; None if none has been found.
    """

    measure: Measure
    share: float
    length_limit: float | None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Recent time from request to reply, from the buckets of ``uncork_request_duration_seconds``."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class TimeShares(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a request goes, as recent means.

    Attributes:
        queue_ms: in the queue.
        batch_ms: in its batch, from release to reply.
        transport_ms: the rest: reading the request and writing the answer.
    """

    queue_ms: float
    batch_ms: float
    transport_ms: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The last exception of a handler.

    Attributes:
        error: the name of its class.
        place: file and line in the service's code; empty if the exception came from elsewhere.
        message: its text, which may quote requests; None if clients can read this document.
        error_id: id in the last answer; the log has the traceback under it.
        requests: requests that got 500 for this error at this place since ``first``.
        first, last: seconds since 1970.
    """

    error: str
    place: str
    message: str | None
    error_id: str
    requests: int
    first: float
    last: float


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A recommendation with its reason; ``code`` is stable, for programs."""

    code: str
    text: str


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API, or one model behind a proxy.

    Attributes:
        id: unique in this document: the name, after that of the service if there are several.
        service: its name; empty in a proxy.
        streams: whether answers are streamed, so that nothing is batched.
        counts: the unit of estimates, limits and rates: rows, or their cost.
        goal_ms: None if there is none.
        max_batch_rows: the batch limit, or the policy's if that is lower.
        sentence: the recent past, in words; ``waits_for``: what the queue waits for now;
            ``why_this_size``: the reason for the size of batches; ``why_refused``: the reasons for recent
            refusals, None if there were none.
        window_s: length of the window: 30 s, up to a tenth more; less if nothing happened before that.
        too_few_requests: fewer than 20 requests were answered in the window, or it is shorter than a second.
            Figures that would be chance are None then.
        answered: recent answers without 4xx, which are the client's fault. ``errors``, by status, and
            ``refused`` are among these, ``error_share`` and ``refused_share`` their shares; None without an
            answer.
        failure: None if no handler raised since the start, and in a proxy.
        requests, protocols: recent answers, by status and by protocol; ``releases`` and ``sheds``: recent,
            by reason.
        rate_rows: recent arrivals in rows per second, including refused ones.
        capacity_rows: rows per second of all workers at full load, when they are always busy and queues
            grow. It counts on batches as large as the goal and the cap allow, but no larger than any that
            ran. None if too few batches ran, or if all were of about one size and larger ones are allowed.
            ``capacity_is_least``: true if larger batches than any that ran may answer more.
        balanced_rows: the smallest mean batch, in rows, that sustains the rate of arrivals; None if there is
            no such size.
        estimate: None if too few batches have run.
        padding: None while no batch is known to have had rows of different lengths.
        mean_batch_rows, latency, shares: recent; None without a batch or an answer.
        queued_requests, queued_rows, queued_bytes: the queue now; ``oldest_ms``: how long its oldest request
            has waited.
    """

    id: str
    service: str
    name: str
    route: str | None
    streams: bool
    counts: Literal["rows", "cost"]
    policy: str
    goal_ms: float | None
    max_batch_rows: float
    state: ApiState
    sentence: str
    waits_for: str
    why_this_size: str
    why_refused: str | None
    limited_by: Limit
    advice: list[Advice]
    window_s: float
    too_few_requests: bool
    answered: int
    errors: dict[str, int]
    error_share: float | None
    refused: int
    refused_share: float | None
    failure: Failure | None
    requests: dict[str, int]
    protocols: dict[Transport, int]
    releases: dict[Reason, int]
    sheds: dict[ShedReason, int]
    rate_rows: float | None
    capacity_rows: float | None
    capacity_is_least: bool
    balanced_rows: float | None
    estimate: Estimate | None
    padding: Padding | None
    mean_batch_rows: float | None
    latency: Latency | None
    shares: TimeShares | None
    queued_requests: int
    queued_rows: float
    queued_bytes: int
    oldest_ms: float


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, or one slot for a call to a server behind a proxy.

    Attributes:
        service: the name of its service; empty in a proxy.
        index: its replacement has the same.
        pid: of the process, on its machine; None in a proxy.
        host: the machine; None if it is the gateway's own, and in a proxy.
        url: of the server; None for a worker.
        state: ``starting``, ``idle``, ``busy``, or ``lost``: the worker is not restarted yet, or the server
            is not healthy.
        doing: a clause in words, such as ``has been running 32 rows of predict for 12 ms``.
    """

    service: str
    index: int
    pid: int | None
    host: str | None
    url: str | None
    state: str
    doing: str


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Why there are as many workers as there are, where their number follows the traffic.

    Attributes:
        wanted: workers that the traffic needs.
        target: workers that there should be: ``wanted`` within the bounds, lowered one at a time.
        least, most: the bounds.
        start_s: how long a worker usually takes from its launch until it is ready; None before the first.
        state: what happens, such as ``enough``, ``up`` or ``waiting``.
    """

    wanted: int
    target: int
    least: int
    most: int
    start_s: float | None
    state: str
    sentence: str


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service, or the servers behind a proxy, which have no name.

    Attributes:
        sentence: its state, in words.
        restarts: its workers that were restarted since the start.
        utilization: share of its workers' recent time that batches took; None without a worker, or a batch.
        scaling: None where the number of its workers is fixed.
        shadow: what became of the copies of requests that it got since the start, by outcome; None if it got
            none.
    """

    name: str
    state: State
    sentence: str
    restarts: int
    utilization: float | None
    scaling: Scaling | None
    shadow: dict[str, int] | None


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """The last reload that changed settings.

    Attributes:
        time: seconds since 1970.
        names: the settings that changed.
    """

    time: float
    names: list[str]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        server: name of the service, or ``proxy``, or ``gateway`` if there are several services; None until a
            worker has connected.
        time: seconds since 1970.
        uptime_s: since the gateway was created.
        window_s: the longest window of recent figures.
        sentence: the state as a whole, in words.
        restarts: workers that were restarted since the start.
        utilization: share of the workers' recent time that batches took; None without a worker, or a batch.
        scaling: None where the number of workers is fixed, and if there are several services.
        services: their states; what comes before sums them up.
        settings_change: None if no reload has changed a setting.
    """

    version: str
    server: str | None
    time: float
    uptime_s: float
    window_s: float
    state: State
    sentence: str
    restarts: int
    utilization: float | None
    scaling: Scaling | None
    settings_change: SettingsChange | None
    services: list[Service]
    workers: list[Worker]
    apis: list[Api]
