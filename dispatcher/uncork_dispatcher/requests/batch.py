"""A batch, from its release to its end."""

from __future__ import annotations

from typing import Generic, TypeVar

from uncork_dispatcher.policies.base import Reason
from uncork_dispatcher.requests.queue import Entry, RequestQueue

Q = TypeVar("Q")


class Batch(Generic[Q]):
    """Requests that run together on one worker. Times are seconds on the core's clock.

    Attributes:
        number: identifies the batch; never used twice.
        requests: the requests, as they were submitted to the core.
        entries: the core's entries of the requests; empty once the batch has ended.
        rows: the number of rows, or their total cost.
        padded: the total cost if every row were as long as the longest.
        count: the number of rows.
        deadlines: for each request, when the worker should be done with it.
        reason: why the batch was released.
        predicted_s: the predicted seconds at the worker; ``spread_s`` is their standard deviation.
        released: when the batch was released.
        is_ahead: True if it was sent while its worker ran another batch.
        started: when it started; until then, when it should start.
        seconds: how long it ran; 0 until it has ended.
        timeout_s: how many seconds it may run.
        transport_s: average seconds that batches of its API spend on the way to the worker and back.
        bulk_rows: the rows (or cost) of its requests of the second class.
        pads: True if its size is counted as rows x longest, because the model pads.
    """

    __slots__ = (
        *("number", "worker", "api", "key", "group", "requests", "entries", "rows", "padded", "count"),
        *("deadlines", "reason", "predicted_s", "spread_s", "released", "is_ahead", "started", "seconds"),
        *("timeout_s", "transport_s", "bulk_rows", "pads"),
    )

    def __init__(
        self,
        number: int,
        worker: int,
        queue: RequestQueue,
        entries: list[Entry],
        rows: float,
        padded: float,
        count: float,
        *,
        reason: Reason,
        predicted_s: float,
        released: float,
        started: float,
        is_ahead: bool,
        spread_s: float,
        timeout_s: float,
        transport_s: float,
        bulk_rows: float = 0.0,
        pads: bool = False,
    ) -> None:
        self.number = number
        self.worker = worker
        self.api = queue.api
        self.key = queue.key
        self.group = queue.group
        self.requests: tuple[Q, ...] = tuple([entry.request for entry in entries])
        self.entries = entries
        for entry in entries:
            entry.batch = number
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
        self.bulk_rows = bulk_rows
        self.pads = pads

    def __repr__(self) -> str:
        return f"<Batch {self.number} of {self.api} on {self.worker}: {self.requests}>"

    @property
    def finish(self) -> float:
        """The predicted time at which the worker is done."""
        return self.started + self.predicted_s

    @property
    def gives_up_at(self) -> float:
        """The time at which the batch is abandoned if it still runs."""
        return self.started + self.timeout_s

    @property
    def left_s(self) -> list[float]:
        """For each request, the seconds from the start of the batch to its deadline; negative if late."""
        return [deadline - self.started for deadline in self.deadlines]

    def ended(self, now: float) -> None:
        self.started = min(self.started, now)
        self.seconds = now - self.started
