"""The current batch, for handlers and log records."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import msgspec

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


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
        group: the value of the API's ``group_by`` that all rows share, as a tuple if it has several; None
            without ``group_by``, and for a header that the requests do not have.
        parameters: for each row of this call, the parameters of its request in the Open Inference Protocol
            V2, without ``binary_data_output``; empty for rows without any, and of other protocols.
        classes: for each row of this call, the name of its request's class; None if the API has one class.
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
    group: Any = None
    parameters: tuple[Mapping[str, Any], ...] = ()
    classes: tuple[str, ...] | None = None

    @property
    def deadline_left_s(self) -> float:
        """Seconds until the first request is due; negative if it is late, infinite during warm-up.

        For handlers that can trade quality for speed, for example with a smaller beam.
        """
        return min(self.due, default=math.inf) - time.monotonic()


running: ContextVar[Context] = ContextVar("uncork_context")
"""The current batch, set for the duration of its execution."""


def context() -> Context:
    """Return the batch that the calling handler is executing.

    Raises:
        LookupError: outside a handler call, for example in ``setup`` or in a thread that the handler started.
    """
    try:
        return running.get()
    except LookupError:
        raise LookupError("uncork.context() works only in a handler, while it runs a batch") from None


def set_rows(
    costs: Sequence[float], parameters: Sequence[Mapping[str, Any]], classes: Sequence[str] = ()
) -> None:
    """Set the costs and classes, if any, and the parameters of the rows of the next handler call."""
    running.set(
        msgspec.structs.replace(
            context(),
            costs=tuple(costs) or None,
            parameters=tuple(parameters),
            classes=tuple(classes) or None,
        )
    )


class BatchOfRecord(logging.Filter):
    """Adds ``batch`` and ``api`` of the current batch to log records, and ``batch_text`` for text formats."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Accept every record."""
        batch = running.get(None)
        record.batch_text = ""
        if batch is not None:
            record.batch, record.api = batch.batch_id, batch.api
            record.batch_text = f" [batch {batch.batch_id}]"
        return True
