"""What a handler can know of the batch that it runs, and what its log lines say of it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The batch that runs.

    Attributes:
        batch_id: as the callers see it in ``X-Batch-Id``.
        api: which api it is for.
        worker_index: number of the worker, from 0.
        requests: how many share it.
        rows: how many rows they have together.
        due: when each of them should be done here, for its answer to be in time: within its goal, and before
            its client gives up. In seconds of ``time.monotonic()``; empty while the worker warms up.
        traceparent, tracestate: where the batch is in a trace, as the W3C's headers of these names say it,
            for spans of the handler's own; empty if the gateway traces nothing.
    """

    batch_id: str
    api: str
    worker_index: int
    requests: int
    rows: int
    due: tuple[float, ...] = ()
    traceparent: str = ""
    tracestate: str = ""

    @property
    def deadline_left_s(self) -> float:
        """Seconds from now until the first of the requests is due; negative if it is late.

        A handler that can be quicker at a price, such as a smaller beam, asks this. Infinite while the worker
        warms up.
        """
        return min(self.due, default=math.inf) - time.monotonic()


_current: ContextVar[Context] = ContextVar("uncork_context")


def context() -> Context:
    """The batch that the calling handler runs.

    Raises:
        LookupError: if none runs here: in ``setup``, or in a thread of the handler's own.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("uncork.context() is for handlers, while they run a batch") from None


@contextmanager
def running(batch: Context) -> Iterator[None]:
    """Have it be known until the block ends."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)


class BatchOfRecord(logging.Filter):
    """Gives log records ``batch`` and ``api`` if a batch runs; and ``batch_text``, for lines of text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything through."""
        batch = _current.get(None)
        record.batch_text = ""
        if batch is not None:
            record.batch, record.api = batch.batch_id, batch.api
            record.batch_text = f" [batch {batch.batch_id}]"
        return True
