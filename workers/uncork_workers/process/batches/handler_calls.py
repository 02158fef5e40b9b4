"""Merge requests, call the handler with their rows, and split the results."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, TypeVar

from uncork_workers.definition.outputs.encoding import (
    Array,
    CompleteResponse,
    Encoded,
    as_array,
    encode,
    encode_each,
)
from uncork_workers.definition.outputs.split import SplitResults, join_chunks, split_results
from uncork_workers.definition.service import ApiDefinition
from uncork_workers.process.batches.chunks import (
    CallSizes,
    Chunk,
    cut_chunks,
    padded_size,
    with_copies,
    without_copies,
)
from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.batches.exception_reports import name_handler
from uncork_workers.process.batches.merging import BatchRequests, merge
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.process.context import NO_PARAMETERS, context, set_rows
from uncork_workers.process.recorded_metrics import RecordedMetrics
from uncork_workers.wire.messages import Batch, RowsForm, Wanted

Result = tuple[bytes | CompleteResponse, RowsForm]
"""The body of a response, and the form of its rows."""

T = TypeVar("T")

_NONE = BatchRequests((), (), ())


class HandlerCalls:
    """The calls of the handler for the requests of one batch.

    Attributes:
        limit: the size of calls that fits into memory; it learns from each call that works.
        sizes: how the size of a call is counted.
        ends: when requests begin no further call; infinity: never.
        chunks: (cost, seconds) of each successful call.
        returned: what the last call returned.
    """

    def __init__(
        self,
        api: ApiDefinition,
        handler: Callable[[Any], Any],
        batch: Batch,
        limit: SizeLimit,
        departures: Departures | None = None,
    ) -> None:
        self.limit = limit
        self.ends = math.inf
        self.chunks: list[tuple[float, float]] = []
        self.returned: object = None
        self._adapter = api.adapter
        self._api = api
        self._handler = handler
        self._batch = batch
        self._departures = departures
        self.sizes = CallSizes(batch.allowed_batch_sizes, batch.allowed_lengths, batch.pads)
        self.metrics = RecordedMetrics()
        """What the handler has recorded in calls whose results are used."""
        self._merging = _NONE
        self._called: tuple[int, Sequence[float]] | None = None
        """The rows of the last call, and their costs; None while requests are merged."""

    @property
    def last(self) -> tuple[int, float]:
        """The rows and the size of the last call, or of the one that was to follow a merge."""
        rows, costs = self._called or _rows_of(self._merging)
        return rows, self.sizes.of(rows, costs)

    def merge(self, requests: BatchRequests) -> Any:
        """Return the rows of all requests.

        Raises:
            BaseException: what the adapter raises; :class:`InvalidInput` for a body that is not valid.
        """
        self._merging, self._called = requests, None
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
        before = self.metrics.copy()
        try:
            return self._call(requests, merged)
        except BaseException as error:
            self.metrics.restore(before)
            name_handler(error, self._api.methods)
            raise

    def begin(self, requests: BatchRequests, merged: Any) -> Any:
        """Set the context of the only call with these requests, and return its rows; None if it needs none
        or several.
        """
        total, costs = _rows_of(requests)
        if len(self._cut(total, costs)) != 1:
            return None
        parameters, classes = _of_rows(requests.parameters, requests), _of_rows(requests.classes, requests)
        size = self._begin(requests, range(total), costs, parameters, classes)
        return merged if size == total else with_copies(merged, size)

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
            encoded = self._encode(returned, size, count, raw=requests.raw)
            return split_results(encoded, requests.rows, requests.raw)
        except BaseException as error:
            name_handler(error, self._api.methods)
            raise

    def _call(self, requests: BatchRequests, merged: Any) -> SplitResults:
        total, costs = _rows_of(requests)
        chunks = self._cut(total, costs)
        parameters, classes = _of_rows(requests.parameters, requests), _of_rows(requests.classes, requests)
        encoded: list[Encoded | Array] = []
        done = 0
        for count, cost in chunks:
            began = time.perf_counter()
            if done and began >= self.ends:
                raise TimeoutError(
                    f"{done} of {total} rows have run, in calls that fit into memory, when the batch's time "
                    "was up"
                )
            if done:
                self.look()
            self.stop_if_cancelled()
            self.returned = None  # the memory of the last call's results is free for this one
            rows = merged if len(chunks) == 1 else merged[done : done + count]
            part = slice(done, done + count)
            size = self._begin(
                requests, range(done, done + count), costs[part], parameters[part], classes[part]
            )
            self.returned = self._handler(rows if size == count else with_copies(rows, size))
            self.stop_if_cancelled()
            chunk = self._encode(self.returned, size, count, raw=requests.raw)
            if len(chunks) > 1:
                # The next call of the handler may reuse the same arrays.
                chunk = chunk.copied()
            encoded.append(chunk)
            self._ended(cost, time.perf_counter() - began)
            done += count
        if not encoded:
            return SplitResults([], [])
        joined = encoded[0] if len(encoded) == 1 else join_chunks(encoded)
        return split_results(joined, requests.rows, requests.raw)

    def look(self) -> None:
        """Find out which clients have left by now."""
        if self._departures is not None:
            self._departures.all_left()

    def stop_if_cancelled(self) -> None:
        """Raise CancelledError if the worker knows that all clients of the batch have left."""
        if self._departures is not None and self._departures.cancelled:
            raise asyncio.CancelledError

    def _cut(self, rows: int, costs: Sequence[float]) -> list[Chunk]:
        """Cut the rows of requests into those of each call."""
        sizes = self._batch.allowed_batch_sizes
        return cut_chunks(
            rows,
            costs,
            limit=self._batch.limit_rows,
            most_rows=None if sizes is None else sizes[-1],
            fits=self.limit.most,
            sizes=self.sizes,
        )

    def _begin(
        self,
        requests: BatchRequests,
        part: range,
        costs: Sequence[float],
        parameters: Sequence[Mapping[str, Any]],
        classes: Sequence[str],
    ) -> int:
        """Set the context of a call with some rows, unless it fits already; return its padded size."""
        self._called = len(part), costs
        rows = padded_size(len(part), self._batch.allowed_batch_sizes)
        of_row = None
        if not rows == len(part) == context().rows:
            of_row = with_copies(_of_rows(requests.positions, requests)[part.start : part.stop], rows)
        if costs or parameters or classes or of_row is not None:
            own = with_copies(parameters, rows) if parameters else [NO_PARAMETERS] * rows
            set_rows(
                with_copies(costs, rows) if costs else (),
                own,
                with_copies(classes, rows) if classes else (),
                of_row,
            )
        return rows

    def _ended(self, cost: float, seconds: float) -> None:
        """Learn from a call that worked."""
        is_whole = self._departures is None or not self._departures.noticed
        if self.limit.learns and self._called is not None and is_whole:
            self.limit.worked(self.sizes.of(*self._called))
        self.chunks.append((cost, seconds))

    def _encode(
        self, results: object, expected: int, count: int, *, raw: Sequence[Wanted]
    ) -> Encoded | Array:
        """Encode the results of a call, without those of copies."""
        encoded = self._encode_all(results, expected, raw=raw)
        return without_copies(encoded, count) if expected > count else encoded

    def _encode_all(self, results: object, expected: int, *, raw: Sequence[Wanted]) -> Encoded | Array:
        if self._adapter.answers_each:
            return encode_each(results, expected=expected)
        array = as_array(results, expected=expected) if any(raw) else None
        if array is not None:
            return array
        return encode(
            results,
            expected=expected,
            accept=self._batch.accept,
            as_json=not raw or set(raw) != {"tensors"},
            as_tensors="tensors" in raw,
        )


class StreamCalls(HandlerCalls):
    """The call for a request whose response is streamed while the handler runs.

    The handler returns a ``Rejected`` instead of streaming, or None.
    """

    def _call(self, requests: BatchRequests, merged: Any) -> SplitResults:
        if not requests.bodies:
            return SplitResults([], [])
        self._begin(requests, range(sum(requests.rows)), (), _of_rows(requests.parameters, requests), ())
        rejected = self._handler(merged)
        body = b"" if rejected is None else CompleteResponse(rejected.status, rejected.detail.encode())
        return SplitResults([body], [None])


def _rows_of(requests: BatchRequests) -> tuple[int, list[float]]:
    """Return the number of rows of these requests, and the cost of each; no costs if the API has none."""
    return sum(requests.rows), [*chain.from_iterable(requests.costs)]


def _of_rows(values: Sequence[T], requests: BatchRequests) -> list[T]:
    """Return the value of each row, given those of each request; empty if there are none."""
    return [*chain.from_iterable(map(repeat, values, requests.rows))] if values else []
