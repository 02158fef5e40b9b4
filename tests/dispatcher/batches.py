"""Batches without a core."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, cast

from uncork_dispatcher.jobs import Submission
from uncork_dispatcher.policies.base import Reason
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.queue import Entry, RequestQueue


def submitted(payload: Any = None, *, rows: int = 1, cost: float | None = None, arrival: float = 0.0) -> Any:
    """A request that nobody waits for."""
    request: Submission[Any, Any] = Submission(cast(Any, None), "a", payload, rows=rows, cost=cost)
    request.arrival = arrival
    return request


def batch_of(
    *requests: Any,
    number: int = 1,
    worker: int = 0,
    api: str = "a",
    key: Hashable = None,
    rows: float | None = None,
    padded: float | None = None,
    count: float | None = None,
    reason: Reason = "idle",
    predicted_s: float = 0.0,
    spread_s: float = 0.0,
    started: float = 0.0,
    gives_up_at: float = math.inf,
    transport_s: float = 0.0,
    seconds: float = 0.0,
) -> Batch[Any]:
    """A batch of these requests, one row each; it was released when it started."""
    queue = RequestQueue(api, key)
    entries = [
        Entry(place, request, started, 1.0, 0, math.inf, math.inf, queue, (1.0, 1.0, 1.0, 1.0))
        for place, request in enumerate(requests, 1)
    ]
    rows = len(requests) if rows is None else rows
    batch: Batch[Any] = Batch(
        number,
        worker,
        queue,
        entries,
        rows,
        rows if padded is None else padded,
        rows if count is None else count,
        reason=reason,
        predicted_s=predicted_s,
        released=started,
        started=started,
        is_ahead=False,
        spread_s=spread_s,
        timeout_s=gives_up_at - started,
        transport_s=transport_s,
        bulk_rows=sum([request.rows for request in requests if getattr(request, "bulk", False)]),
    )
    batch.seconds = seconds
    return batch


def rows_of(batch: Batch[Any]) -> list[int]:
    return [request.rows for request in batch.requests]


def costs_of(batch: Batch[Any]) -> list[float]:
    return [request.rows if request.cost is None else request.cost for request in batch.requests]
