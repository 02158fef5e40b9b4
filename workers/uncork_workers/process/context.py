"""The current batch, for handlers and log records."""

import logging
import math
import time
from collections.abc import Sequence
from contextvars import ContextVar, Token

import msgspec


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The batch that the handler is executing.

    Attributes:
        batch_id: the id that clients get in ``X-Batch-Id``.
        api: name of the API.
        worker_index: number of the worker, from 0.
        requests: number of requests in the batch.
        rows: number of rows in the batch.
        due: for each request, when the worker should be done for the response to meet the request's deadline,
            in seconds of ``time.monotonic()``. Empty during warm-up.
        traceparent, tracestate: the batch's span as W3C trace context headers, the parent for the handler's
            own spans. Empty if tracing is off.
        costs: the cost of each row of this call, which may have only a part of the batch's rows; None if the
            API has no ``cost``.
        allowed_lengths: the ``allowed_lengths`` of the API; empty if it has none.
    """

    batch_id: str
    api: str
    worker_index: int
    requests: int
    rows: int
    due: tuple[float, ...] = ()
    traceparent: str = ""
    tracestate: str = ""
    costs: tuple[float, ...] | None = None
    allowed_lengths: tuple[float, ...] = ()

    @property
    def deadline_left_s(self) -> float:
        """Seconds until the first request is due; negative if it is late, infinite during warm-up.

        For handlers that can trade quality for speed, for example with a smaller beam.
        """
        return min(self.due, default=math.inf) - time.monotonic()


_current: ContextVar[Context] = ContextVar("uncork_context")


def context() -> Context:
    """Return the batch that the calling handler is executing.

    Raises:
        LookupError: outside a handler call, for example in ``setup`` or in a thread that the handler started.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("uncork.context() works only in a handler, while it runs a batch") from None


class Running:
    """Sets the current batch for the duration of a ``with`` block.

    A class, because a generator as a context manager takes more than twice as long.
    """

    __slots__ = ("_batch", "_token")

    def __init__(self, batch: Context) -> None:
        self._batch = batch
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        self._token = _current.set(self._batch)

    def __exit__(self, *error: object) -> None:
        assert self._token is not None
        _current.reset(self._token)


def costing(costs: Sequence[float]) -> Running:
    """Set the costs of the rows of a handler call for the duration of a ``with`` block."""
    return Running(msgspec.structs.replace(context(), costs=tuple(costs)))


class BatchOfRecord(logging.Filter):
    """Adds ``batch`` and ``api`` of the current batch to log records, and ``batch_text`` for text formats."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Accept every record."""
        batch = _current.get(None)
        record.batch_text = ""
        if batch is not None:
            record.batch, record.api = batch.batch_id, batch.api
            record.batch_text = f" [batch {batch.batch_id}]"
        return True
