"""A batch, from its release on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from uncork_dispatcher.policies.base import Reason
from uncork_dispatcher.requests.queue import Entry

Q = TypeVar("Q")


class Batch(Generic[Q]):
    """Requests that run together on one worker. Times are seconds on the core's clock.

    Attributes:
        number: identifies it; never used twice.
        requests: its requests, as they were submitted to the core.
        entries: the same inside the core, until it has ended.
        rows: its rows, or their total cost.
        padded: that cost if every row were as long as the longest.
        count: its number of rows.
        deadlines: when each request should be done at the worker.
        reason: why it was released.
        predicted_s: the predicted seconds at the worker; ``spread_s`` is their standard deviation.
        released: when it was released.
        is_ahead: whether it was sent while its worker ran another batch.
        started: when it started; until then, when it should start.
        seconds: how long it ran; 0 until it has ended.
        timeout_s: how long it may run.
        transport_s: how long batches of its API usually spend on the way to the worker and back.
    """

    __slots__ = (
        *("number", "worker", "api", "key", "requests", "entries", "rows", "padded", "count", "deadlines"),
        *("reason", "predicted_s", "spread_s", "released", "is_ahead", "started", "seconds"),
        *("timeout_s", "transport_s"),
    )

    def __init__(
        self,
        number: int,
        worker: int,
        api: str,
        key: Hashable,
        *,
        entries: list[Entry],
        rows: float,
        padded: float,
        count: float,
        reason: Reason,
        predicted_s: float,
        released: float,
        started: float,
        is_ahead: bool,
        spread_s: float,
        timeout_s: float,
        transport_s: float,
    ) -> None:
        self.number = number
        self.worker = worker
        self.api = api
        self.key = key
        self.requests: tuple[Q, ...] = tuple([entry.request for entry in entries])
        self.entries = entries
        self.rows = rows
        self.padded = padded
        self.count = int(count)
        self.deadlines = [entry.deadline for entry in entries]
        self.reason = reason
        self.predicted_s = predicted_s
        self.spread_s = spread_s
        self.released = released
        self.is_ahead = is_ahead
        self.started = started
        self.seconds = 0.0
        self.timeout_s = timeout_s
        self.transport_s = transport_s

    def __repr__(self) -> str:
        return f"<Batch {self.number} of {self.api} on {self.worker}: {self.requests}>"

    @property
    def finish(self) -> float:
        """When the worker should be done with it."""
        return self.started + self.predicted_s

    @property
    def gives_up_at(self) -> float:
        """When it is abandoned."""
        return self.started + self.timeout_s

    @property
    def left_s(self) -> list[float]:
        """How many seconds each request has left at the start, to be done in time; negative if it is late."""
        return [deadline - self.started for deadline in self.deadlines]

    def ended(self, now: float) -> None:
        """Note that it has ended."""
        self.started = min(self.started, now)
        self.seconds = now - self.started
