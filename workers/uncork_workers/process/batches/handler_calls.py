"""Merge requests, call the handler with their rows, and split the results."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from itertools import chain, islice, repeat
from typing import Any, TypeVar

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.outputs.encoding import (
    Array,
    CompleteResponse,
    Encoded,
    as_array,
    encode,
    encode_each,
)
from uncork_workers.definition.outputs.split import SplitResults, join_chunks, split_results
from uncork_workers.definition.outputs.tensors import copied
from uncork_workers.definition.service import ApiDefinition
from uncork_workers.process.batches.chunks import (
    CallSizes,
    filled,
    padded_size,
    part_of,
    with_copies,
    without_copies,
)
from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.batches.failures import name_handler
from uncork_workers.process.batches.merging import BatchRequests, merge
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.process.context import NO_PARAMETERS, context, set_rows
from uncork_workers.process.recorded_metrics import RecordedMetrics
from uncork_workers.wire.forms import RowsForm, Wanted
from uncork_workers.wire.frames import encodable
from uncork_workers.wire.messages import Batch

Result = tuple[bytes | CompleteResponse, RowsForm]
"""The body of a response, and the form of its rows."""

T = TypeVar("T")

_NONE = BatchRequests((), (), ())


class HandlerCalls:
    """The calls of the handler for the requests of one batch.

    Attributes:
        rows: the number of rows of the batch.
        limit: the size of calls that fits into memory; it learns from each call that works.
        sizes: how the size of a call is counted.
        ends: when requests begin no further call; infinity: never.
        chunks: (cost, seconds) of each successful call.
        returned: the results of the last call.
    """

    ends = math.inf
    returned: object = None
    _merging = _NONE
    _called: tuple[int, Sequence[float]] | None = None
    """The rows of the last call, and their costs; None while requests are merged."""

    def __init__(
        self,
        api: ApiDefinition,
        handler: Callable[[Any], Any],
        batch: Batch,
        limit: SizeLimit,
        departures: Departures | None = None,
    ) -> None:
        self.rows = sum(batch.rows)
        self.limit = limit
        self.chunks: list[tuple[float, float]] = []
        self._adapter = api.adapter
        self._api = api
        self._handler = handler
        self._batch = batch
        self._departures = departures
        self.sizes = CallSizes(batch.allowed_batch_sizes, batch.allowed_lengths, batch.pads)
        self.metrics = RecordedMetrics()
        """What the handler has recorded in calls whose results are used."""

    @property
    def last(self) -> tuple[int, float]:
        """The rows and the size of the last call, or of the one that was to follow a merge."""
        rows, costs = self._called or _rows_of(self._merging)
        return rows, self.sizes.of(rows, costs)

    def merge(self, requests: BatchRequests) -> Any:
        """Return the rows of all requests.

        Raises:
            BaseException: what the adapter raises; :class:`InvalidInput` for a body that is not valid, or
                parameters that cannot be read.
        """
        self._merging, self._called = requests, None
        for one in requests.parameters:
            if isinstance(one, InvalidInput):
                raise InvalidInput(*one.args)  # an exception of its own: a traceback keeps the batch alive
        return merge(self._adapter, requests)

    def results(self, requests: BatchRequests) -> Sequence[Result]:
        """Merge requests and return one result for each.

        Raises:
            BaseException: what the adapter or the handler raises.
        """
        # The handler may have put rows on a device in place of those that it got. They go with this frame.
        return list(zip(*self.call(requests, self.merge(requests)), strict=True))

    def call(self, requests: BatchRequests, merged: Any) -> SplitResults:
        """Call the handler with one chunk of the rows after the other; return one body per request.

        Raises:
            BaseException: what the handler raises.
            TimeoutError: if a call would begin after ``ends``.
            CancelledError: if all clients of the batch have left.
        """
        before = self.metrics.copy() if self.chunks else None
        call = self._stream if self._api.description.streams else self._call
        try:
            return call(requests, merged)
        except BaseException as error:
            self.metrics.restore(before)
            name_handler(error, self._api.methods)
            raise

    def begin(self, requests: BatchRequests, merged: Any) -> Any:
        """Set the context of the only call with these requests, and return its rows; None if it needs none
        or several.
        """
        total, costs = _rows_of(requests)
        if len(self.sizes.cut(total, costs, limit=self._batch.limit_rows, fits=self.limit.most)) != 1:
            return None
        size = self._begin(requests, 0, total, costs)
        return merged if size == total else filled(merged, size)

    def ended(self, seconds: float) -> None:
        """Learn that the call worked whose context :meth:`begin` has set."""
        assert self._called is not None
        count, costs = self._called
        self._ended(sum(costs) if costs else count, seconds)

    def split(self, requests: BatchRequests, returned: Any) -> SplitResults:
        """Return one body per request from the results of the call whose context :meth:`begin` has set.

        Raises:
            BaseException: if they are no results for these rows.
        """
        try:
            count = sum(requests.rows)
            size = padded_size(count, self._batch.allowed_batch_sizes)
            encoded = self._encode(self._converted(returned), size, count, raw=requests.raw)
            return split_results(encoded, requests.rows, requests.raw)
        except BaseException as error:
            name_handler(error, self._api.methods)
            raise

    def _call(self, requests: BatchRequests, merged: Any) -> SplitResults:
        total, costs = _rows_of(requests)
        chunks = self.sizes.cut(total, costs, limit=self._batch.limit_rows, fits=self.limit.most)
        if len(chunks) == 1:
            encoded = self._chunk(requests, merged, 0, costs, *chunks[0])
            return split_results(encoded, requests.rows, requests.raw)
        encoded_chunks: list[Encoded | Array] = []
        done = 0
        for count, cost in chunks:
            if done:
                if time.perf_counter() >= self.ends:
                    raise TimeoutError(
                        f"{done} of {total} rows have run, in calls that fit into memory, when the batch's "
                        "time was up"
                    )
                self.look()
                self.stop_if_cancelled()
            end = done + count
            rows = part_of(merged, done, end)
            chunk = self._chunk(requests, rows, done, costs[done:end], count, cost)
            # The next call of the handler may reuse the same arrays.
            encoded_chunks.append(chunk.copied())
            done = end
        if not encoded_chunks:
            return SplitResults([], [])
        return split_results(join_chunks(encoded_chunks), requests.rows, requests.raw)

    def _chunk(
        self,
        requests: BatchRequests,
        rows: Any,
        start: int,
        costs: Sequence[float],
        count: int,
        cost: float,
    ) -> Encoded | Array:
        """Call the handler with ``count`` rows of these requests from ``start`` on; encode its results."""
        began = time.perf_counter()
        self.returned = None  # the memory of the last call's results is free for this one
        size = self._begin(requests, start, count, costs)
        self.returned = self._handler(rows if size == count else filled(rows, size))
        self.stop_if_cancelled()
        self.returned = self._converted(self.returned)
        encoded = self._encode(self.returned, size, count, raw=requests.raw)
        self._ended(cost, time.perf_counter() - began)
        return encoded

    def _stream(self, requests: BatchRequests, merged: Any) -> SplitResults:
        """Call the handler that streams its response; it returns a ``Rejected`` instead, or None."""
        if not requests.bodies:
            return SplitResults([], [])
        self._begin(requests, 0, sum(requests.rows), ())
        rejected = self._handler(merged)
        body = CompleteResponse(rejected.status, encodable(rejected.detail).encode()) if rejected else b""
        return SplitResults([body], [None])

    def look(self) -> None:
        """Find out which clients have left by now."""
        if self._departures is not None:
            self._departures.all_left()

    def stop_if_cancelled(self) -> None:
        """Raise CancelledError if the worker knows that all clients of the batch have left."""
        if self._departures is not None and self._departures.cancelled:
            raise asyncio.CancelledError

    def _begin(self, requests: BatchRequests, start: int, count: int, costs: Sequence[float]) -> int:
        """Set what ``context()`` says of the ``count`` rows from ``start`` on, with these costs.

        Return the padded size of their call.
        """
        self._called = count, costs
        size = padded_size(count, self._batch.allowed_batch_sizes)
        has_all = size == count == self.rows
        if costs or requests.parameters or requests.classes or not has_all:
            rows = slice(start, start + count)
            parameters = _of_rows(requests.parameters, requests, rows, size)
            set_rows(
                with_copies(costs, size) if costs else (),
                # A handler may change them, and the rows may run again.
                [copied(dict(one)) for one in parameters] or [NO_PARAMETERS] * size,
                _of_rows(requests.classes, requests, rows, size),
                None if has_all else _of_rows(requests.positions, requests, rows, size),
            )
        return size

    def _ended(self, cost: float, seconds: float) -> None:
        """Learn from a call that worked."""
        departures = self._departures
        if self.limit.learns and not (departures is not None and departures.noticed):
            assert self._called is not None
            self.limit.worked(self.sizes.of(*self._called))
        self.chunks.append((cost, seconds))

    def _converted(self, returned: object) -> object:
        """Return the results as rows; see :func:`uncork_workers.definition.service.set_task`."""
        return returned if self._api.convert is None else self._api.convert(returned, context().parameters)

    def _encode(
        self, results: object, expected: int, count: int, *, raw: Sequence[Wanted]
    ) -> Encoded | Array:
        """Encode the results of a call, without those of copies."""
        encoded: Encoded | Array | None = None
        if self._adapter.answers_each:
            encoded = encode_each(results, expected=expected)
        elif any(raw):
            encoded = as_array(results, expected=expected)
        if encoded is None:
            encoded = encode(
                results,
                expected=expected,
                accept=self._batch.accept,
                as_json=not raw or set(raw) != {"tensors"},
                as_tensors=any(raw),
            )
        return without_copies(encoded, count) if expected > count else encoded


def _of_rows(values: Sequence[T], requests: BatchRequests, rows: slice, size: int) -> Sequence[T]:
    """Repeat the value of each request for its rows in a call, and the last for the padding to ``size``."""
    each = chain.from_iterable(map(repeat, values, requests.rows))
    return with_copies([*islice(each, rows.start, rows.stop)], size) if values else ()


def _rows_of(requests: BatchRequests) -> tuple[int, list[float]]:
    """Return the number of rows of these requests, and the cost of each; no costs if the API has none."""
    return sum(requests.rows), [*chain.from_iterable(requests.costs)]
