"""The interface of policies: what a policy sees, and what it answers.

A policy decides when to release queued requests, and how many. It sees aggregates and never touches the
queue, so every policy is correct and only better or worse. It is deterministic: time comes in with the view.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, Self

from mypy_extensions import mypyc_attr

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import ReturnForecast
from uncork_dispatcher.loop_plan import ClosedLoop

Reason = Literal["full", "deadline", "not_worth_waiting", "idle", "drain"]
HoldReason = Literal["balance", "returns", "goal", "next", "window", "quarantine", "host"]
"""Why requests are held although a worker is idle. The policy holds to keep batches even, for clients to
return, to use the goal to the last moment, for one more request, or until a fixed time has passed. The core
holds quarantined requests while one of them is retried, a lost batch until a worker of another host is
idle, and both until they leave a worker for other requests."""


class Numbers(Protocol):
    """Numbers by place, from 0 on; those of many workers are computed when they are read."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> float: ...


class View(NamedTuple):
    """One queue as its policy sees it when a worker is idle. Times are seconds on the core's clock."""

    now: float
    rows: float
    """Rows queued (or their cost, where the API gives one); more than 0."""
    requests: int
    """Requests that carry them; at least 1."""
    oldest: float
    """Arrival of the request queued longest."""
    newest: float
    """Arrival of the newest request."""
    deadline: float
    """Earliest deadline among the queued requests."""
    goal_s: float
    """The latency goal of the API."""
    full: bool
    """Whether rows or bytes are at the limit of a batch."""
    idle_workers: int
    """Workers that could start now; at least 1."""
    busy_until: Sequence[float]
    """Predicted finish of each running batch, soonest first; before ``now`` for those that are late."""
    running_rows: Numbers
    """Rows of the API in each of these batches; 0 in another API's. Computed when read."""
    estimate: Estimate
    """Of an average worker."""
    slowdown: float
    """How many times as long the next idle worker takes."""
    new_client_rate: float
    """Arrivals of the API from clients that were not expected back, in rows per second."""
    load_rate: float
    """All arrivals of the API, in rows per second: the higher of a short and a long average."""
    returns: ReturnForecast
    """Which answered clients are expected back, and when."""
    mean_rows: float
    """Rows of an average request among the last arrivals of the API (or their cost); more than 0."""


class Release(NamedTuple):
    """Send the most urgent requests that fit into ``rows`` rows, at least one request."""

    rows: float
    reason: Reason


class Hold(NamedTuple):
    """Hold the requests, and ask again at ``until``, or earlier when something happens."""

    until: float
    reason: HoldReason
    rows: float = 0.0
    """While fewer rows are queued, arrivals do not end the hold. The limit falls linearly, to the rows queued
    now at ``until``. With the default, the policy is asked again at every arrival."""


class BatchDone(NamedTuple):
    """A batch that worked: its content, how long its oldest request was queued, and how long it ran."""

    now: float
    rows: float
    requests: int
    queued_s: float
    seconds: float


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy(ABC):
    """Decides when to release. One object serves one API."""

    rank: ClassVar[int] = 100
    """Position in lists of policies; of equal ranks, by name."""
    usage: ClassVar[str] = ""
    """The forms of its name with arguments, for help texts and error messages."""
    warm_up_s: ClassVar[float] = 0.0
    """Seconds of traffic that it needs before it can be measured."""
    plans: ClassVar[bool] = False
    """Whether :meth:`plan` is called."""
    keeps_goal: ClassVar[bool] = True
    """Whether its batches are small enough to end within the goal, by the estimate."""

    most_requests: ClassVar[float] = math.inf
    """The most requests in one batch."""

    def __init__(self, *, limit_rows: int) -> None:
        self.limit_rows = limit_rows
        """The most rows that the policy puts into one batch of several requests; may change."""
        self.complete_rows = math.inf
        """A queue with this many rows is released at once, in batches of this size; may change."""

    @classmethod
    def from_arguments(cls, arguments: Sequence[str], *, limit_rows: int) -> Self | None:
        """Build a policy from the arguments behind its name; return None if they are wrong."""
        return None if arguments else cls(limit_rows=limit_rows)

    @abstractmethod
    def decide(self, view: View) -> Release | Hold:
        """Answer for one queue. ``Hold.until`` must lie after ``view.now``."""

    def observe(self, done: BatchDone) -> None:  # noqa: B027
        """Learn from a finished batch."""

    def plan(self, loop: ClosedLoop | None) -> None:  # noqa: B027
        """Set :attr:`complete_rows` for clients that wait for their answers.

        Called after a batch of several requests, and after each batch while ``complete_rows`` is set. None:
        there are no such clients, others use the workers too, or the workers are hardly idle.
        """


REGISTERED: dict[str, type[Policy]] = {}


def register(name: str, policy: type[Policy]) -> None:
    """Make a policy available under a name. It is no decorator: compiled classes cannot have one."""
    REGISTERED[name] = policy
