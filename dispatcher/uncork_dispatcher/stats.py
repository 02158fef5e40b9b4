"""What the core tells of itself to those who ask: pictures of one moment, for metrics and for people."""

from __future__ import annotations

from typing import NamedTuple

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.policies.base import HoldReason
from uncork_dispatcher.rules import ApiRules


class Holding(NamedTuple):
    """For how long a policy holds, though a worker is idle, if nothing happens; and why."""

    seconds: float
    reason: HoldReason


class ApiStats(NamedTuple):
    """One api. Rows are their cost, where the api gives one."""

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
    returning_share: float
    """Share of the arrivals that came from clients who were expected back after an answer."""
    clients: int
    """How many clients there seem to be: those whose requests are held or run, and those expected back."""
    smallest_rows: float
    """Rows of the smallest request that was answered; 0 before the first."""
    known_rows: tuple[float, float] | None
    """Sizes of the smallest and the largest batch that the estimate rests on; None before the first."""
    oldest_s: float
    """How long the request has been held that is held longest; 0 if none is."""
    holding: Holding | None
    """What the policy waits for; None if nothing is held, or if it waits for a worker."""


class ApiSample(NamedTuple):
    """Totals and beliefs of one api that are cheap to read, for figures over time.

    Attributes:
        estimate: of the time in the worker.
        transport_s: on the way to the worker and back, on average.
        arrived_rows: since the start, also those that were refused.
    """

    estimate: Estimate
    transport_s: float
    arrived_rows: float
    queued_rows: float


class RunningBatch(NamedTuple):
    """A batch that a worker runs; ``left_s`` is how long it is still expected to, negative if it is late."""

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
