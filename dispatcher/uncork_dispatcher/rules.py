"""What the dispatcher must know about one api."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uncork_dispatcher.policies import make_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRules:
    """The limits and the goal of one api. Checked when made.

    Attributes:
        name: the api.
        goal_s: latency goal in seconds; a request's deadline is its arrival plus this.
        max_batch_rows: most rows in one batch of several requests. A request with more travels alone.
        max_batch_bytes: most bytes of bodies in one batch of several requests.
        policy: name of the policy, see :func:`uncork_dispatcher.policies.make_policy`.
        max_hold_s: longest time that a request is held while a worker is idle, whatever the policy says.
        timeout_s: seconds a batch may run before it is given up, and that requests wait while there are no
            workers.
        idempotent: whether requests whose worker was lost may be run once more, one by one.
        max_queue_rows: rows that may be held; a request beyond is refused.
        max_queue_requests: requests that may be held, where rows are counted by a cost that may be small.
        max_queue_bytes: bytes of bodies that may be held; a request beyond is refused.
        fair: whether the flows of requests share each of the api's queues equally, see
            :class:`uncork_dispatcher.requests.fair_queue.FairQueue`.

    Raises:
        ValueError: if a limit is not positive or the policy is unknown.
    """

    name: str
    goal_s: float = 0.3
    max_batch_rows: int = 1000
    max_batch_bytes: int = 64 * 2**20
    policy: str = "cork"
    max_hold_s: float = math.inf
    timeout_s: float = 60.0
    idempotent: bool = True
    max_queue_rows: int = 20_000
    max_queue_requests: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    fair: bool = False

    def __post_init__(self) -> None:
        for field in (
            "goal_s",
            "max_batch_rows",
            "max_batch_bytes",
            "timeout_s",
            "max_queue_rows",
            "max_queue_requests",
            "max_queue_bytes",
        ):
            value = getattr(self, field)
            if not value > 0:
                raise ValueError(f"api {self.name!r}: {field} must be positive, got {value}")
        if not self.max_hold_s >= 0:
            raise ValueError(f"api {self.name!r}: max_hold_s must be 0 or more, got {self.max_hold_s}")
        try:
            make_policy(self.policy, limit_rows=self.max_batch_rows)
        except ValueError as error:
            raise ValueError(f"api {self.name!r}: policy: {error}") from None
