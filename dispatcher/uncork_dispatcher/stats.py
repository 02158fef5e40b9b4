"""Snapshots of the core's state, for metrics and status pages."""

from __future__ import annotations

import math
from typing import NamedTuple

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.policies.base import HoldReason
from uncork_dispatcher.rules import ApiRules


class Holding(NamedTuple):
    """The remaining hold of a queue if nothing else happens, and its reason."""

    seconds: float
    reason: HoldReason


class ClassStats(NamedTuple):
    """The queued requests of one class."""

    queued_requests: int
    queued_rows: float
    queued_bytes: int
    oldest_s: float
    """Seconds that the oldest request has been queued; 0 if none is."""


class ApiStats(NamedTuple):
    """The state of one API. Rows are counted by cost if its requests have costs.

    Arrivals and queued requests exclude bulk.
    """

    name: str
    queued_requests: int
    queued_rows: float
    queued_bytes: int
    rate_rows: float
    """Arrivals in rows per second, over about half a second."""
    estimate: Estimate
    rules: ApiRules
    limit_rows: int
    """The policy's limit of rows in one batch of several requests."""
    smallest_rows: float
    """Rows of the smallest request that was answered; 0 before the first."""
    known_rows: tuple[float, float] | None
    """Rows of the smallest and of the largest batch behind the estimate; None before the first."""
    slope_error_s: float
    """The likely error of the estimate's slope; infinite until two sizes have run repeatedly."""
    oldest_s: float
    """Seconds that the oldest request has been queued; 0 if none is."""
    padding: Padding | None
    """How the lengths of rows affect batch times; None while no lengths are known to differ."""
    holding: Holding | None
    """The hold of the most urgent queue; None if it is not held, as without an idle worker."""
    bulk: ClassStats | None = None
    """The second class; None if there is none."""
    workers: int = 0
    """The workers that may run its batches; ``idle`` of them could start one."""
    idle: int = 0
    fits: float = math.inf
    """The smallest size of batches, over the workers, that fits into memory; infinity without a limit."""


class ApiSample(NamedTuple):
    """Totals and estimates of one API that are cheap to read often.

    Attributes:
        estimate: estimate of the batch time in an average worker.
        transport_s: average seconds that a batch spends on the way to the worker and back.
        arrived_rows: rows of the first class that have arrived since the start, shed requests included.
        queued_rows: rows that are queued, of both classes.
        bulk_rows: rows of the second class that have arrived since the start, shed requests included.
    """

    estimate: Estimate
    transport_s: float
    arrived_rows: float
    queued_rows: float
    bulk_rows: float = 0.0


class RunningBatch(NamedTuple):
    """A batch that a worker runs; ``left_s`` is its predicted remaining time, negative if it is late."""

    worker: int
    api: str
    rows: float
    requests: int
    running_s: float
    left_s: float


class WorkStats(NamedTuple):
    """The numbers of healthy and of idle workers, and the running batches."""

    workers: int
    idle: int
    running: list[RunningBatch]
