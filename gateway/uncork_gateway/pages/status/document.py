"""The document of ``/status``, which the dashboard also shows.

It describes one moment. "Recent" means the API's window. Sentences and advice quote the fields. If an API
defines a cost, "rows" are units of cost.
"""

from typing import Literal

import msgspec

from uncork_dispatcher import Reason
from uncork_dispatcher.learning.measures import Measure
from uncork_gateway.errors import RefusalReason
from uncork_gateway.telemetry.metrics import Transport

ApiState = Literal["ok", "degraded", "failing"]
"""By the share of recent requests that failed or were refused: at most 1 %, more, or at least half."""
State = Literal["starting", "ready", "degraded", "failing", "not_ready", "draining"]
"""Whether requests are accepted, and if so the worst state of an API; ``ready`` if all are ``ok``."""
Limit = Literal["nothing", "workers", "goal", "cap"]
"""The bottleneck of an API: too few workers, a goal too short for larger batches, or
the batch limit."""

BulkLimit = Literal["goal", "cycles", "cap", "share"]
"""The limit on the second class in a batch: the goal of the first; the time of ten batches of the first;
the batch limit; or its share of the workers' time, because the goal leaves no room."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted time of a batch from release to reply: ``intercept_ms + slope_ms * rows``.

    It is smoothed, and scaled to recent batches. The dispatcher's own estimate, in ``/metrics``, follows
    every batch.

    Attributes:
        spread: relative standard deviation of batch times around the line.
        rows: the smallest and largest batch sizes behind the estimate.
    """

    intercept_ms: float
    slope_ms: float
    spread: float
    rows: tuple[float, float]


class Padding(msgspec.Struct, frozen=True, kw_only=True):
    """How the lengths of rows affect batch times. A length is a row's cost or, without costs, its bytes.

    Attributes:
        measure: what batch times depend on: ``sum``, the sum of the costs; ``longest``, rows x largest cost,
            because batches are padded to their longest row; ``bytes`` and ``longest_bytes``, the same with
            the bytes of request bodies.
        share: the share of padding in the work of about the last 20 batches; 0 without padding.
        length_limit: the length beyond which rows take no more time; None if none has been found.
    """

    measure: Measure
    share: float
    length_limit: float | None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of recent latency, from the buckets of ``uncork_request_duration_seconds``."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class TimeShares(msgspec.Struct, frozen=True, kw_only=True):
    """The mean times of recent requests, by stage.

    Attributes:
        queue_ms: time in the queue.
        batch_ms: time in the batch, from release to reply.
        transport_ms: all other time, to read the request and write the response.
    """

    queue_ms: float
    batch_ms: float
    transport_ms: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The latest exception of a handler.

    Attributes:
        error: the name of its class.
        place: file and line in the service's code; empty if the exception came from elsewhere.
        message: its text, which may quote requests; None if clients may read this document.
        error_id: the id in the latest response, which finds the traceback in the log.
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
    """A recommendation with its reason; programs may rely on ``code``."""

    code: str
    text: str


class RequestClass(msgspec.Struct, frozen=True, kw_only=True):
    """One class of an API's requests.

    Attributes:
        goal_ms: the latency goal; None if the class has none.
        answered, refused, sheds, rate_rows, latency: as for an API, of this class alone.
        queued_requests, queued_rows, queued_bytes, oldest_ms: the queue of the class now.
        limited_by: what limits the rows of the second class in a batch; None for the first, and if too few
            batches have run.
    """

    name: str
    goal_ms: float | None
    answered: int
    refused: int
    sheds: dict[RefusalReason, int]
    rate_rows: float | None
    latency: Latency | None
    queued_requests: int
    queued_rows: float
    queued_bytes: int
    oldest_ms: float
    limited_by: BulkLimit | None


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API, or one model behind a proxy.

    Attributes:
        id: unique in this document: the name, prefixed with the service's if there are several.
        service: the service's name; empty in a proxy.
        streams: True if responses are streamed, without batching.
        counts: the unit of estimates, limits and rates: rows, or their cost.
        goal_ms: the latency goal; None without a goal.
        max_batch_rows: the batch limit, or the policy's if that is lower.
        workers: the ready workers that may run it: those that it has reserved, or those that others share.
        sentence: a summary of the window; ``waits_for``: what the queue waits for now; ``why_this_size``: the
            reason for the mean batch size; ``why_refused``: the reasons for recent refusals, None without
            any.
        window_s: the length of the window: 30 to 33 s, or less after an idle time.
        too_few_requests: True if the window has fewer than 20 responses or is shorter than a second.
            Statistics that would be chance are then None.
        answered: recent responses other than 4xx. They include ``errors``, by status, and ``refused``, whose
            shares are ``error_share`` and ``refused_share``; None without responses.
        coalesced: recent requests that got the response to an identical one, if the API runs those once;
            ``coalesced_share`` is their share of all responses, None without responses.
        failure: the latest exception; None if no handler has raised, and in a proxy.
        requests, protocols: recent responses by status and by protocol; ``releases`` and ``sheds``: recent
            releases and refusals by reason.
        rate_rows: recent arrivals in rows per second, including refused ones.
        capacity_rows: rows per second of all workers at full load, when they are always busy and queues grow.
            It assumes the largest batches that the goal and the cap allow, but none larger than have run.
            While larger ones are allowed and the time per row is unknown, it is the throughput of recent
            batches. None if too few batches ran. ``capacity_is_least``: True if larger batches may serve
            more.
        balanced_rows: the smallest mean batch, in rows, that sustains the arrival rate; None if no size does.
        estimate: None if too few batches have run.
        padding: None until a batch has had rows of different lengths.
        mean_batch_rows, latency, shares: recent means and percentiles; None without a batch or response.
        queued_requests, queued_rows, queued_bytes: the queue now; ``oldest_ms``: how long its oldest request
            has waited.
        classes: both classes of requests; empty if the API has one. All other fields about requests are then
            those of the first class; batches have rows of both.
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
    workers: int
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
    coalesced: int
    coalesced_share: float | None
    failure: Failure | None
    requests: dict[str, int]
    protocols: dict[Transport, int]
    releases: dict[Reason, int]
    sheds: dict[RefusalReason, int]
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
    classes: list[RequestClass]


class WorkerGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that a worker may use. NVML does not report the values that are None.

    Attributes:
        name: its number in NVML and ``nvidia-smi``; the UUID of a MIG instance.
        memory_used_bytes, memory_total_bytes: its memory that any process uses, and all of it.
        worker_memory_bytes: its memory that the worker uses.
        utilization: the share of about the last second in which it was busy, with work of any process.
    """

    name: str
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    worker_memory_bytes: int | None
    utilization: float | None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, or one slot for a call to a server behind a proxy.

    Attributes:
        service: the service's name; empty in a proxy.
        index: the worker's place, which its successor takes over.
        pid: the process id on its machine; None in a proxy.
        host: the machine; None for the gateway's own, and in a proxy.
        url: the server's URL; None for a worker.
        state: ``starting``, ``idle``, ``busy``, or ``lost`` (the worker has not restarted yet, or the server
            is not healthy).
        doing: a clause that says what it does, such as ``has been running 32 rows of predict for 12 ms``.
        gpus: those that it has reported in the last half minute; empty in a proxy, and without NVML.
    """

    service: str
    index: int
    pid: int | None
    host: str | None
    url: str | None
    state: str
    doing: str
    gpus: list[WorkerGpu]


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for the number of workers, if the number follows the traffic.

    Attributes:
        wanted: the number of workers that the traffic needs.
        target: the number of workers to run: ``wanted`` within the bounds, lowered one at a time.
        least, most: the bounds of the number.
        start_s: how long a worker usually takes from its launch until it is ready; None before the first.
        state: the latest decision, such as ``enough``, ``up`` or ``waiting``.
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
        sentence: a summary of its state.
        utilization: the share of recent worker time spent on batches; None without a worker or batch.
        scaling: None if the number of workers is fixed.
        shadow: the number of copied requests by outcome since the start; None without copies.
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
    """

    time: float
    names: list[str]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        server: the service's name, ``proxy``, or ``gateway`` for several services; None until a worker has
            connected.
        time: seconds since 1970.
        uptime_s: seconds since the gateway was created.
        window_s: the longest window of recent figures.
        sentence: a summary of the state.
        utilization: the share of recent worker time spent on batches; None without a worker or batch.
        scaling: None if the number of workers is fixed, or for several services.
        services: the state of each service; the fields above summarize them.
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
