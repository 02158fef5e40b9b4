"""The document that ``/status`` answers, and that the dashboard shows.

Figures called recent are of the last ``window_s`` seconds; counts are of the same histograms and counters as
those of ``/metrics``. Where an api gives a cost, its rows are units of cost everywhere but in ``batches``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["starting", "ready", "not_ready", "draining"]
Limit = Literal["nothing", "workers", "goal", "cap"]
"""What keeps an api from answering more, or sooner: too few workers for the load, a goal that is shorter than
what a batch needs, or the largest batch that the user allows."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The line that batch times are predicted by: ``intercept_ms + slope_ms * rows``.

    Attributes:
        spread: relative standard deviation of batch times around the line.
        rows: the batch sizes, smallest and largest, of which it knows; None before the first batch.
    """

    intercept_ms: float
    slope_ms: float
    spread: float
    rows: tuple[float, float] | None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """From request to reply, recent, as the buckets of ``uncork_request_duration_seconds`` tell it."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class TimeShares(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a request goes, recent means.

    Attributes:
        queue_ms: held by the dispatcher.
        batch_ms: in the worker's hands.
        transport_ms: all else: reading, writing, and the way to the worker and back.
    """

    queue_ms: float
    batch_ms: float
    transport_ms: float


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One finished batch.

    Attributes:
        number: rises from batch to batch, over all apis.
        ended: seconds since 1970.
        rows: of all its requests; ``cost`` is the same, or their cost if the api gives one.
        waited_ms: how long the request was held that waited longest.
        worker: index of the worker that ran it, -1 if it had gone; in a proxy, number of the call's permit.
    """

    number: int
    ended: float
    api: str
    rows: int
    cost: float
    requests: int
    reason: str
    waited_ms: float
    predicted_ms: float
    actual_ms: float
    worked: bool
    worker: int


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and why; ``code`` is for programs and never changes for the same cause."""

    code: str
    text: str


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One api, or one model behind a proxy.

    Attributes:
        streams: whether answers are streamed, so that nothing is batched.
        counts: what estimates, limits and rates of the api count: its rows, or their cost.
        goal_ms: None if there is none.
        max_batch_rows: the cap of a batch; that of the policy, if it has a lower one.
        sentence: what happens now, in words.
        waits_for: what the policy waits for now, in words.
        why_this_size: why batches are as large as they are, in words.
        why_refused: why requests were answered 503 lately (or 504, where their clients had no time left),
            in words; None if none was.
        limited_by: what limits it now.
        rate_rows: rows that arrive per second, as the dispatcher estimates it.
        capacity_rows: rows per second that all workers together could answer within the goal, or late if
            not even one row can be; None before there is an estimate. It counts on no batches of more than
            four times the rows of the largest so far: where more are allowed, ``capacity_is_least`` is true.
        balanced_rows: rows in a batch at which batches are done as quickly as rows arrive; None if there is
            no such size, no arrival, or no estimate.
        queued_requests, queued_rows, queued_bytes: what is held now; ``oldest_ms``: since when.
        requests: recent answers by status; ``releases`` and ``sheds``: recent, by reason.
        mean_batch_rows: recent; None without a batch.
        latency, shares: None without an answer in the window.
    """

    name: str
    route: str | None
    streams: bool
    counts: Literal["rows", "cost"]
    policy: str
    goal_ms: float | None
    max_batch_rows: float
    sentence: str
    waits_for: str
    why_this_size: str
    why_refused: str | None
    limited_by: Limit
    advice: list[Advice]
    rate_rows: float
    capacity_rows: float | None
    capacity_is_least: bool
    balanced_rows: float | None
    estimate: Estimate
    queued_requests: int
    queued_rows: float
    queued_bytes: int
    oldest_ms: float
    requests: dict[str, int]
    releases: dict[str, int]
    sheds: dict[str, int]
    mean_batch_rows: float | None
    latency: Latency | None
    shares: TimeShares | None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, or one permit for a call to a server behind a proxy.

    Attributes:
        index: of its place; its replacement has the same.
        pid: of the process; None where it is not ours.
        url: of the server; None for our own.
        state: ``starting``, ``idle``, ``busy``, or ``lost``: it ended and was not started again yet, or the
            server is not healthy.
        doing: what it does, in words: ``runs 32 rows of predict, for 12 ms now``.
    """

    index: int
    pid: int | None
    url: str | None
    state: str
    doing: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What goes on.

    Attributes:
        server: name of the service, or ``proxy``; None until a worker has said it.
        time: seconds since 1970.
        uptime_s: since the gateway was made.
        window_s: over which recent figures are taken.
        sentence: how it is as a whole, in words.
        restarts: workers that were started again since the start.
    """

    version: str
    server: str | None
    time: float
    uptime_s: float
    window_s: float
    state: State
    sentence: str
    restarts: int
    workers: list[Worker]
    apis: list[Api]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What the dashboard is sent, about once a second; ``batches`` are those since the event before."""

    status: Status
    batches: list[Batch]
