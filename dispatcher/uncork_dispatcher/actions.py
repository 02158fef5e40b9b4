"""The actions that the core returns for its driver to execute. To execute a :class:`Batch`, start it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from uncork_dispatcher.requests.batch import Batch

ShedReason = Literal[
    "deadline", "client_deadline", "queue_full", "too_many_groups", "displaced", "no_worker", "draining"
]
BatchStatus = Literal["worked", "failed", "cancelled", "lost", "timed_out"]
"""How a batch ended: it ``worked`` (only such batches update the estimate), ``failed`` because the handler
raised, was ``cancelled`` because callers left while it ran, ``lost`` with its worker, or ``timed_out``."""

SHORTEST_RETRY_S = 1.0
"""The shortest ``Retry-After`` in seconds, and the default while nothing is known."""


class Shed(NamedTuple):
    """Refuse this request, which has just arrived or was queued."""

    request: Any
    api: str
    reason: ShedReason
    retry_after_s: float


class Abandon(NamedTuple):
    """Give up this batch, which ran past its timeout, and its worker.

    The batches ``behind`` it on the worker have not started; the core releases them again.
    """

    batch: Batch[Any]
    behind: list[Batch[Any]]


class Lost(NamedTuple):
    """Fail this request: its worker was lost, and it may not run again."""

    request: Any


class Expired(NamedTuple):
    """Cancel this running request, whose client's time has passed, or extend it if it has other clients."""

    request: Any


class WorkerWanted(NamedTuple):
    """Start a worker, which :meth:`Dispatcher.workers_on_demand` has promised: requests have none."""


class GoalOutOfReach(NamedTuple):
    """Warn the operator: the smallest request on an idle worker takes longer than the goal."""

    api: str
    goal_s: float
    needed_s: float


Action = Batch[Any] | Shed | Abandon | Lost | Expired | GoalOutOfReach | WorkerWanted
