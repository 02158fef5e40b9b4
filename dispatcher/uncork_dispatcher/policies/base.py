"""What a policy sees, and what it answers.

A policy decides when to release the requests that are held, and how many. It sees aggregates and never
touches the queue, so that every policy is correct and only better or worse. It is deterministic: time
comes in with the view.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import ReturnForecast

Reason = Literal["full", "deadline", "not_worth_waiting", "idle", "drain"]
HoldReason = Literal["balance", "returns", "goal", "next", "window", "suspect"]
"""What is waited for while a worker is idle: the moment that keeps batches even, answered clients to come
back, the last moment that meets the goal, one more request, the end of a fixed time, a suspect that runs."""


class View(NamedTuple):
    """One queue as its policy sees it when a worker is idle. Times are seconds on the core's clock."""

    now: float
    rows: float
    """Rows held (or their cost, where the api gives one); more than 0."""
    requests: int
    """Requests that carry them; at least 1."""
    oldest: float
    """Arrival of the request held longest."""
    newest: float
    """Arrival of the request that came last."""
    deadline: float
    """Earliest deadline among the requests held."""
    goal_s: float
    """The latency goal of the api."""
    full: bool
    """Whether a batch can take no more: rows or bytes are at the limit."""
    idle_workers: int
    """Workers that could start now; at least 1."""
    busy_until: tuple[float, ...]
    """Predicted finish of each running batch, soonest first, never before ``now``."""
    running_rows: tuple[float, ...]
    """Rows of the api in each of these batches; 0 in another api's."""
    estimate: Estimate
    """Of an average worker."""
    slowdown: float
    """How many times as long the idle worker takes that is next."""
    new_client_rate: float
    """Arrivals of the api from clients that were not expected back, in rows per second."""
    load_rate: float
    """Arrivals of the api from everybody, in rows per second: the higher of a short and a long average."""
    returns: ReturnForecast
    """Which answered clients are expected back, and when."""


class Release(NamedTuple):
    """Send the most urgent requests that fit into ``rows`` rows, at least one request."""

    rows: float
    reason: Reason


class Hold(NamedTuple):
    """Keep them, and ask again at ``until`` or when something happens before."""

    until: float
    reason: HoldReason


class BatchDone(NamedTuple):
    """A batch that worked: what it carried, how long its oldest request was held, how long it ran."""

    now: float
    rows: float
    requests: int
    held_s: float
    seconds: float


class Policy(Protocol):
    """Decides when to release. One object serves one api."""

    @property
    def limit_rows(self) -> int:
        """The most rows that the policy puts into one batch of several requests."""
        ...

    def decide(self, view: View) -> Release | Hold:
        """Answer for one queue. ``Hold.until`` must lie after ``view.now``."""
        ...

    def observe(self, done: BatchDone) -> None:
        """Learn from a finished batch."""
        ...
