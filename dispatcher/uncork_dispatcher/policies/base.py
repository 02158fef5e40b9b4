"""The interface of policies: the view of a queue, and the decision to release or to hold it.

A policy decides when to release queued requests, and how many. It sees aggregates and never touches the
queue, so no policy can lose a request. It is deterministic: the view contains the time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

from mypy_extensions import mypyc_attr

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import Returns
from uncork_dispatcher.loop_plan import ClosedLoop

MARGIN = 0.02
"""The margin of deadlines as a share of :attr:`View.patience_s`, for errors of the estimate."""

Reason = Literal["full", "deadline", "not_worth_waiting", "idle", "drain"]
HoldReason = Literal[
    "balance", "returns", "goal", "next", "window", "quarantine", "host", "class", "neighbor"
]
"""Why requests are held although a worker is idle. The policy holds to keep batches even, for clients to
return, to use the goal to the last moment, for one more request, or until a fixed time has passed. The core
holds a quarantined request while another one runs, a lost batch until a worker of another host is idle,
either of them to leave a worker for other requests, bulk until there is room for it, and a long batch that
would take the last idle worker from APIs with shorter goals."""


class View(NamedTuple):
    """One queue as its policy sees it when a worker is idle. Times are seconds on the core's clock."""

    now: float
    rows: float
    """Rows queued (or their cost, where the API gives one); more than 0."""
    requests: int
    """Requests queued; at least 1."""
    oldest: float
    """Arrival of the request queued longest."""
    newest: float
    """Arrival of the newest request."""
    deadline: float
    """Earliest deadline among the queued requests."""
    goal_s: float
    patience_s: float
    """The goal, or the time that the client of the most urgent request has set if that is shorter."""
    full: bool
    """True if the queue's rows or bytes reach the limit of a batch."""
    idle_workers: int
    """Workers that could start now; at least 1."""
    busy_until: Sequence[float]
    """Predicted finish of each running batch, soonest first; before ``now`` for late batches."""
    running_rows: Callable[[int], float]
    """A function from a place in ``busy_until`` to the rows of the batch; 0 if it is not of this API."""
    estimate: Estimate
    """Estimate of the batch time in an average worker."""
    slowdown: float
    """The factor by which the next idle worker is slower: its batch time over the estimate."""
    new_client_rate: float
    """Arrivals of the API from clients that were not expected back, in rows per second."""
    load_rate: float
    """All arrivals of the API, in rows per second: the higher of a short and a long average."""
    returns: Returns
    """Which answered clients are expected back, and when. Read-only."""
    mean_rows: float
    """Rows of an average request among the last arrivals of the API (or their cost); more than 0."""
    batch_rows: float
    """Rows of a batch that is released now; rows of very different lengths are left out."""


class Release(NamedTuple):
    """Release the most urgent requests that fit into ``rows`` rows, at least one request."""

    rows: float
    reason: Reason


class Hold(NamedTuple):
    """Hold the queue until ``until``, unless enough rows arrive (see ``rows``) or something else changes."""

    until: float
    reason: HoldReason
    rows: float = 0.0
    """While fewer rows are queued, arrivals do not end the hold. This number falls linearly, and at ``until``
    equals the rows queued now. With the default, the policy decides again at every arrival."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy(ABC):
    """Decides when to release queued requests, and how many. One object serves one API."""

    rank: ClassVar[int] = 100
    """Position in lists of policies; equal ranks are sorted by name."""
    usage: ClassVar[str] = ""
    """The forms of its name with arguments, for help texts and error messages."""
    warm_up_s: ClassVar[float] = 0.0
    """Seconds of traffic that the policy needs before a measurement."""
    plans: ClassVar[bool] = False
    """True if :meth:`plan` must be called."""
    keeps_goal: ClassVar[bool] = True
    """True if the policy limits batches to sizes that, by the estimate, end within the goal."""

    most_requests: ClassVar[float] = math.inf
    """The most requests in one batch."""

    def __init__(self, *, limit_rows: int) -> None:
        self.limit_rows = limit_rows
        """The most rows that the policy puts into one batch of several requests; may change."""
        self.complete_rows = math.inf
        """A queue with this many rows is released at once, in batches of this size; may change."""
        self.longest_hold_s = math.inf
        """The longest hold, if it is set and not learned; then the rows of a full batch may be set too."""

    @classmethod
    def from_arguments(cls, arguments: Sequence[str], *, limit_rows: int) -> Self | None:
        """Build a policy from the arguments behind its name; return None if they are wrong."""
        return None if arguments else cls(limit_rows=limit_rows)

    @abstractmethod
    def decide(self, view: View) -> Release | Hold:
        """Decide to release or to hold one queue. ``Hold.until`` must be later than ``view.now``."""

    def observe(  # noqa: B027
        self, *, now: float, rows: float, requests: int, queued_s: float, seconds: float
    ) -> None:
        """Learn from a batch that worked: how long its oldest request was queued, and how long it ran."""

    def plan(self, loop: ClosedLoop | None) -> None:  # noqa: B027
        """Set :attr:`complete_rows` for clients that wait for their responses.

        Called after a batch of several requests, and after each batch while ``complete_rows`` is set.
        ``loop`` is None if there are no such clients, if others use the workers too, or if the workers are
        hardly idle.
        """


REGISTERED: dict[str, type[Policy]] = {}


def register(name: str, policy: type[Policy]) -> None:
    """Make a policy available under a name. A function, because compiled classes cannot be decorated."""
    REGISTERED[name] = policy
