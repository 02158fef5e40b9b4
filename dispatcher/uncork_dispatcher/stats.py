"""Snapshots of the core, for metrics and status pages."""

from __future__ import annotations

from typing import NamedTuple

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.policies.base import HoldReason
from uncork_dispatcher.rules import ApiRules


class Holding(NamedTuple):
    """For how long a policy holds with an idle worker, if nothing happens; and why."""

    seconds: float
    reason: HoldReason


class ApiStats(NamedTuple):
    """One API. Rows are their cost, where the API gives one."""

    name: str
    queued_requests: int
    queued_rows: float
    queued_bytes: int
    rate_rows: float
    """Arrivals in rows per second, over about half a second."""
    estimate: Estimate
    rules: ApiRules
    limit_rows: int
    """The most rows that the policy puts into one batch of several requests."""
    smallest_rows: float
    """Rows of the smallest request that was answered; 0 before the first."""
    known_rows: tuple[float, float] | None
    """Sizes of the smallest and the largest batch behind the estimate; None before the first."""
    slope_error_s: float
    """The likely error of the estimate's slope; infinite while batches of one size do not show it."""
    oldest_s: float
    """How long the oldest request has been queued; 0 if none is."""
    padding: Padding | None
    """How the lengths of rows affect batch times; None while no lengths are known to differ."""
    holding: Holding | None
    """Why the policy holds; None if nothing is queued, or if no worker is idle."""


class ApiSample(NamedTuple):
    """Totals and estimates of one API that are cheap to read, for figures over time.

    Attributes:
        estimate: of the batch time in the worker.
        transport_s: average time on the way to the worker and back.
        arrived_rows: since the start, shed requests included.
    """

    estimate: Estimate
    transport_s: float
    arrived_rows: float
    queued_rows: float


class RunningBatch(NamedTuple):
    """A batch that a worker runs; ``left_s`` is the predicted rest of its time, negative if it is late."""

    worker: int
    api: str
    rows: float
    requests: int
    running_s: float
    left_s: float


class WorkStats(NamedTuple):
    """How many healthy workers there are, and what runs."""

    workers: int
    idle: int
    running: list[RunningBatch]
