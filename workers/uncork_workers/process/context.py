"""The current batch, for handlers and log records."""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any

import msgspec

from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.recorded_metrics import RecordedMetrics
from uncork_workers.wire.groups import value_of
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.schema import REQUEST_ID

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


class Context(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The batch that the handler is executing.

    Attributes:
        worker_index: number of the worker, from 0.
        costs: the cost of each row of this call, which may have only a part of the batch's rows; None if the
            API has no ``cost``.
        classes: for each row of this call, the name of its request's class; None if the API has one class.
    """

    # The rest is computed when a handler asks, because few do.
    worker_index: int
    costs: tuple[float, ...] | None = None
    classes: tuple[str, ...] | None = None
    _batch: Batch
    _began: float = 0.0
    """When the worker began the batch, in seconds of ``time.monotonic()``."""
    _names: tuple[str, ...] = ()
    """The headers of the API."""
    _parameters: tuple[Mapping[str, Any], ...] | None = None
    """None if no request has any."""
    _request_of_row: tuple[int, ...] | None = None
    """None if the call has all rows of the batch."""
    _departures: Departures | None = None
    recorded: RecordedMetrics = msgspec.field(default_factory=RecordedMetrics)
    """What :meth:`count` and :meth:`observe` have recorded."""

    @property
    def batch_id(self) -> str:
        """The id that clients get in ``X-Batch-Id``."""
        return self._batch.id

    @property
    def api(self) -> str:
        """Name of the API."""
        return self._batch.api

    @property
    def requests(self) -> int:
        """Number of requests in the batch."""
        return len(self._batch.rows)

    @property
    def rows(self) -> int:
        """Number of rows in the batch."""
        return sum(self._batch.rows)

    @cached_property
    def due(self) -> tuple[float, ...]:
        """For each request, when the worker should be done for the response to meet the request's deadline.

        In seconds of ``time.monotonic()``. Empty during warm-up. It is off by the error of the gateway's
        prediction of when the worker begins the batch.
        """
        return tuple([self._began + left_s for left_s in self._batch.left_s])

    @property
    def traceparent(self) -> str:
        """The batch's span as a W3C header, the parent for the handler's own spans; empty without tracing."""
        return self._batch.trace[0] if self._batch.trace else ""

    @property
    def tracestate(self) -> str:
        """The ``tracestate`` that goes with :attr:`traceparent`."""
        return self._batch.trace[1] if self._batch.trace else ""

    @property
    def allowed_lengths(self) -> tuple[float, ...]:
        """The ``allowed_lengths`` of the API; empty if it has none."""
        return self._batch.allowed_lengths

    @cached_property
    def group(self) -> Any:
        """The value of the API's ``group_by`` that all rows share, as a tuple if it has several.

        None without ``group_by``, and for a header that the requests do not have.
        """
        return None if self._batch.group is None else value_of(self._batch.group)

    @property
    def parameters(self) -> tuple[Mapping[str, Any], ...]:
        """For each row of this call, the parameters of its request in the Open Inference Protocol V2.

        Without ``binary_data_output``. Empty for rows without any, and of other protocols.
        """
        return (NO_PARAMETERS,) * self.rows if self._parameters is None else self._parameters

    @cached_property
    def request_of_row(self) -> tuple[int, ...]:
        """For each row of this call, the position of its request in the batch, from 0."""
        if self._request_of_row is not None:
            return self._request_of_row
        counts = self._batch.rows
        return tuple(chain.from_iterable(map(repeat, range(len(counts)), counts)))

    @cached_property
    def request_ids(self) -> tuple[str, ...]:
        """The id of each request in the batch.

        That of ``X-Request-Id`` if the API lists this header in ``headers``; else the batch's id, a dot and
        the request's position.
        """
        given: Sequence[Mapping[str, str]] = self._batch.headers or ({},) * self.requests
        return tuple([own.get(REQUEST_ID) or f"{self.batch_id}.{at}" for at, own in enumerate(given)])

    @cached_property
    def headers(self) -> Mapping[str, tuple[str | None, ...]]:
        """For each header in the API's ``headers``, in lower case, the value of each row of this call.

        None for a row whose request does not have the header.
        """
        given: Sequence[Mapping[str, str]] = self._batch.headers or [{}] * self.requests
        columns: dict[str, list[str | None]] = {
            name: [own.get(name) for own in given] for name in self._names
        }
        if REQUEST_ID in columns:
            columns[REQUEST_ID] = [*self.request_ids]
        return {name: tuple([values[at] for at in self.request_of_row]) for name, values in columns.items()}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add an amount to a counter of this API, ``app_<name>_total`` at ``/metrics``.

        What a call that raises has recorded does not count; nor does the warm-up.

        Raises:
            ValueError: if the name, the amount or a label is not accepted.
        """
        self.recorded.count(name, amount, labels)

    def observe(self, name: str, value: float, /) -> None:
        """Add a value to a histogram of this API, ``app_<name>`` at ``/metrics``; see :meth:`count`.

        Raises:
            ValueError: if the name or the value is not accepted.
        """
        self.recorded.observe(name, value)

    @contextmanager
    def row(self, row: int) -> Iterator[None]:
        """Add ``request``, the id of a row's request, to the log records of a ``with`` block."""
        token = _request.set(self.request_ids[self.request_of_row[row]])
        try:
            yield
        finally:
            _request.reset(token)

    @property
    def cancelled(self) -> bool:
        """True if the clients of all requests of the batch have left.

        The handler may then return anything, or raise ``asyncio.CancelledError``: nobody gets its results.
        """
        return self._departures is not None and self._departures.all_left()

    @property
    def live(self) -> list[bool]:
        """For each row of this call, whether its client still waits.

        The handler must still return a result for each row, of any value for those without a client.
        """
        left = () if self._departures is None else self._departures.left()
        return [request not in left for request in self.request_of_row]

    @property
    def deadline_left_s(self) -> float:
        """Seconds until the first request is due; negative if it is late, infinite during warm-up.

        For handlers that can trade quality for speed, for example with a smaller beam.
        """
        return min(self.due, default=math.inf) - time.monotonic()


running: ContextVar[Context] = ContextVar("uncork_context")
"""The current batch, set for the duration of its execution."""
_request: ContextVar[str] = ContextVar("uncork_request", default="")
"""The id of the request that the handler works on, if it says so."""


def context() -> Context:
    """Return the batch that the calling handler is executing.

    Raises:
        LookupError: outside a handler call, for example in ``setup`` or in a thread that the handler started.
    """
    try:
        return running.get()
    except LookupError:
        raise LookupError("uncork.context() works only in a handler, while it runs a batch") from None


def departures() -> Departures | None:
    """Return the departures from the running batch; None if nobody can leave."""
    return context()._departures


def set_rows(
    costs: Sequence[float],
    parameters: Sequence[Mapping[str, Any]],
    classes: Sequence[str] = (),
    request_of_row: Sequence[int] | None = None,
) -> None:
    """Set the costs and classes, if any, and the parameters of the rows of the next handler call.

    ``request_of_row`` has the position of each row's request; None if the call has all rows of the batch.
    """
    running.set(
        msgspec.structs.replace(
            context(),
            costs=tuple(costs) or None,
            _parameters=tuple(parameters),
            classes=tuple(classes) or None,
            _request_of_row=None if request_of_row is None else tuple(request_of_row),
        )
    )


def add_batch(record: logging.LogRecord) -> bool:
    """Add ``batch`` and ``api`` of the current batch to a log record, and ``batch_text`` for text formats.

    In a block of :meth:`Context.row`, add ``request`` too; with traces, the ids of the batch's span. As a
    filter of a log handler, it accepts every record.
    """
    batch = running.get(None)
    record.batch_text = ""
    if batch is not None:
        record.batch, record.api = batch.batch_id, batch.api
        record.batch_text = f" [batch {batch.batch_id}]"
        if batch.traceparent:
            record.trace_id, record.span_id = batch.traceparent.split("-")[1:3]
        if request := _request.get():
            record.request = request
    return True
