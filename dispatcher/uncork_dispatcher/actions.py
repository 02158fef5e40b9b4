"""The actions of the core: values that its driver executes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, NamedTuple

from uncork_dispatcher.policies.base import Reason

ShedReason = Literal["deadline", "client_deadline", "queue_full", "no_worker", "draining"]
BatchStatus = Literal["worked", "failed", "lost", "timed_out"]
"""How a batch ended: it ``worked``, which teaches the estimate; ``failed`` (the handler raised), which does
not; it was ``lost`` with its worker; or it ``timed_out``."""


class Start(NamedTuple):
    """Run these requests as one batch on this worker.

    ``rows`` is the number of rows, or their total cost; ``padded`` is that cost if every row were as long as
    the longest. ``deadlines`` is when each request should be done at the worker. ``ahead_s`` is None unless
    the worker still runs another batch: then it is the predicted seconds until this one starts.
    """

    batch: int
    worker: int
    api: str
    key: Hashable
    requests: tuple[int, ...]
    rows: float
    padded: float
    reason: Reason
    predicted_s: float
    deadlines: tuple[float, ...] = ()
    ahead_s: float | None = None


class Shed(NamedTuple):
    """Refuse this request, on arrival or after it was queued."""

    request: int
    api: str
    reason: ShedReason
    retry_after_s: float


class Abandon(NamedTuple):
    """Give up this batch, which ran past its timeout. Its worker is not used any more."""

    batch: int
    worker: int
    requests: tuple[int, ...]


class Lost(NamedTuple):
    """Fail this request: its worker was lost, and it may not run again."""

    request: int


class GoalOutOfReach(NamedTuple):
    """Warn the operator: the smallest request on an idle worker takes longer than the goal."""

    api: str
    goal_s: float
    needed_s: float


Action = Start | Shed | Abandon | Lost | GoalOutOfReach
