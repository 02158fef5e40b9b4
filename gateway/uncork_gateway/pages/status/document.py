"""The document that ``/status`` answers, and that the dashboard shows.

All of it is of one moment. Figures called recent are of the api's window, and each thing has one figure:
sentences and advice quote the fields. Where an api gives a cost, its rows are units of cost everywhere but in
``batches``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from uncork_gateway.telemetry.recorder import FinishedBatch

ApiState = Literal["ok", "degraded", "failing"]
"""How many of the recent requests ended in an error or were refused: at most 1 %, more, or at least half."""
State = Literal["starting", "ready", "degraded", "failing", "not_ready", "draining"]
"""Whether requests are taken; where they are, the worst state of an api, ``ready`` if all are ``ok``."""
Limit = Literal["nothing", "workers", "goal", "cap"]
"""What keeps an api from answering more, or sooner: too few workers for the load, a goal that is shorter than
what a batch needs, or the largest batch that the user allows."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted time of a batch from release to reply: ``intercept_ms + slope_ms * rows``.

    It is smoothed for people, and scaled to what recent batches took. The dispatcher's own, which follows
    every batch, is in ``/metrics``.

    Attributes:
        spread: relative standard deviation of batch times around the line.
        rows: the batch sizes, smallest and largest, of which it knows.
    """

    intercept_ms: float
    slope_ms: float
    spread: float
    rows: tuple[float, float]


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """From request to reply, recent, as the buckets of ``uncork_request_duration_seconds`` tell it."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class TimeShares(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a request goes, recent means.

    Attributes:
        queue_ms: in the queue.
        batch_ms: with its batch, from release to reply.
        transport_ms: all else: reading the request and writing the answer.
    """

    queue_ms: float
    batch_ms: float
    transport_ms: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The exception that a handler raised last.

    Attributes:
        error: the name of its class.
        place: file and line of the service's code; empty if none of it was running.
        message: its text, which may quote requests; None where clients may read this document.
        error_id: of the last answer; the log has the traceback under it.
        requests: that got 500 for this error at this place since ``first``.
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
        state: how many of the recent requests got no answer.
        sentence: what happens, in words.
        waits_for: what the policy waits for now, in words.
        why_this_size: why batches are as large as they are, in words.
        why_refused: why recent requests were refused, in words; None if none was.
        limited_by: what limits it.
        window_s: how long the window is: 30 s, up to a tenth more; less if nothing happened before that.
        too_few_requests: fewer than 20 requests were answered in the window, or it is shorter than a second.
            Figures that would be chance are None then.
        answered: recent answers, without 4xx, which are the client's doing. ``errors``, by status, and
            ``refused`` are of these, ``error_share`` and ``refused_share`` their shares; None without an
            answer.
        failure: None if no handler raised since the start, or in a proxy.
        requests: recent answers by status; ``releases`` and ``sheds``: recent, by reason.
        rate_rows: rows that arrived per second, recent, also those that were refused.
        capacity_rows: rows per second that all workers together can answer within the goal, or late if
            not even one row can be; None if too few batches have run to tell. It counts on no batches of more
            than four times the rows of the largest so far: where more are allowed, ``capacity_is_least`` is
            true.
        balanced_rows: rows in a batch at which batches are done as quickly as rows arrive; None if there is
            no such size.
        estimate: None if too few batches have run to tell.
        mean_batch_rows, latency, shares: recent; None without a batch or an answer.
        queued_requests, queued_rows, queued_bytes: the queue now; ``oldest_ms``: how long its oldest request
            has waited.
    """

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
    releases: dict[str, int]
    sheds: dict[str, int]
    rate_rows: float | None
    capacity_rows: float | None
    capacity_is_least: bool
    balanced_rows: float | None
    estimate: Estimate | None
    mean_batch_rows: float | None
    latency: Latency | None
    shares: TimeShares | None
    queued_requests: int
    queued_rows: float
    queued_bytes: int
    oldest_ms: float


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
        window_s: over which recent figures are taken, at most.
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
    batches: list[FinishedBatch]
