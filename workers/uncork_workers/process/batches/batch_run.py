"""One batch inside the worker: merge its requests, call the handler, split the results."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate, chain
from typing import Any

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.outputs.encoding import (
    OK,
    Array,
    CompleteResponse,
    Encoded,
    as_array,
    encode,
    encode_each,
)
from uncork_workers.definition.outputs.split import SplitResults, join_chunks, split_results
from uncork_workers.definition.service import ApiDefinition
from uncork_workers.plural import plural
from uncork_workers.process.batches.bisection import Bisection
from uncork_workers.process.batches.chunks import (
    by_request,
    cut_chunks,
    padded_size,
    with_copies,
    without_copies,
)
from uncork_workers.process.batches.exception_reports import (
    NamingHandler,
    exception_report,
    release,
    repr_of,
)
from uncork_workers.process.batches.merging import BatchRequests, merge
from uncork_workers.process.context import costing
from uncork_workers.process.stopped import Stopped
from uncork_workers.wire.messages import (
    Batch,
    ExceptionReport,
    Reply,
    RowPath,
    RowsForm,
    Wanted,
    compact_forms,
    expand_forms,
)

log = logging.getLogger("uncork.worker")

_INVALID = 400
_FAILED = 500
_SHARE_OF_TIMEOUT = 0.9
_MOST_IDS = 4
_ROWS = CompleteResponse(OK, b"")


class BatchRun:
    """The execution of one batch. Requests are identified by their position in the batch."""

    def __init__(
        self, api: ApiDefinition, handler: Callable[[Any], Any], batch: Batch, bodies: Sequence[bytes]
    ) -> None:
        self._adapter = api.adapter
        self._method = api.handler
        self._handler = handler
        self._batch = batch
        forms = expand_forms(batch.forms, len(bodies))
        costs = () if batch.costs is None else by_request(batch.costs, batch.rows)
        self._requests = BatchRequests(bodies, batch.rows, forms, costs, batch.metas or (), batch.raw or ())
        self._valid: Sequence[int] = ()
        self._complete: dict[int, CompleteResponse] = {}
        self._forms: list[RowsForm] = [None] * len(bodies)
        self._reasons: dict[int, list[str | RowPath]] = {}
        self._exceptions: list[ExceptionReport] = []
        self._worked = True
        self._began = self._portion_began = time.perf_counter()
        self.bodies = [b""] * len(bodies)
        """The bodies of the responses."""
        self.chunks: list[tuple[float, float]] = []
        """(cost, seconds) of each successful handler call."""
        self.returned: object = None
        """What the last handler call returned."""

    def portions(self) -> list[range]:
        """Return the requests to run at a time: all, unless their rows together take too much memory."""
        bodies, metas = self._requests.bodies, self._requests.metas
        counts = self._adapter.portions(bodies, metas) if metas and len(bodies) > 1 else [len(bodies)]
        return [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]

    def run(self, portion: range) -> None:
        """Answer the requests of a portion. If they cannot be merged, find those at fault and run the others.

        Raises:
            BaseException: what the handler raised; :meth:`run_parts` answers the requests then.
        """
        self._portion_began = time.perf_counter()
        self.returned = None  # it may refer to the rows of the portion before
        self._valid = portion
        requests = self._requests if len(portion) == len(self.bodies) else self._requests.pick(portion)
        merged = self._merged(requests)
        if merged is None:
            self._valid = self._mergeable()
            requests = self._requests.pick(self._valid)
            merged = merge(self._adapter, requests) if self._valid else ()
        with NamingHandler(self._method):
            results = self._call(requests, merged)
        if len(results.bodies) == len(self.bodies) and set(map(type, results.bodies)) == {bytes}:
            self.bodies, self._forms = results  # type: ignore[assignment]
            return
        for at, body, form in zip(self._valid, *results, strict=True):
            self._answer(at, body, form)

    def run_parts(self, error: BaseException) -> None:
        """Answer the requests of a portion after :meth:`run` failed, and release the exception.

        Requests that succeed in a smaller part get results.
        """
        self._worked = False
        reported = len(self._exceptions)
        self._search(error)
        if len(self._exceptions) == reported:
            self._exceptions.append(exception_report(error, self._method))
        release(error)

    def _search(self, error: BaseException) -> None:
        valid = self._valid
        if len(valid) == 1 or not self._batch.idempotent:
            self._fail(valid, error)
            return
        self._warn_of_search(len(valid), error)
        # At the timeout the gateway kills the worker, and no request of the batch is answered. A part can
        # take as long as the failed run, so stop in time.
        took_s = time.perf_counter() - self._portion_began
        ends = self._began + _SHARE_OF_TIMEOUT * self._batch.timeout_s - took_s
        search: Bisection[tuple[bytes | CompleteResponse, RowsForm]] = Bisection(valid)
        while search.part is not None and time.perf_counter() < ends:
            outcome = self._try(search.part)
            if isinstance(outcome, BaseException) and len(search.part) > 1:
                release(outcome)
            search.ran(outcome)
        for at, (body, form) in search.results.items():
            self._answer(at, body, form)
        self._fail_each({**search.culprits, **dict.fromkeys(search.given_up, error)})

    def reply(self) -> Reply:
        """Return the reply that goes with ``bodies``."""
        statuses, content_types, headers = [OK] * len(self.bodies), None, None
        if self._complete:
            responses = [self._complete.get(at, _ROWS) for at in range(len(self.bodies))]
            statuses = [one.status for one in responses]
            if any(one.content_type for one in responses):
                content_types = [one.content_type for one in responses]
            if any(one.headers for one in responses):
                headers = [list(one.headers) for one in responses]
        return Reply(
            batch=self._batch.batch,
            worked=self._worked,
            seconds=time.perf_counter() - self._began,
            statuses=statuses,
            lengths=list(map(len, self.bodies)),
            chunks=self.chunks,
            forms=compact_forms(self._forms),
            content_types=content_types,
            headers=headers,
            exceptions=self._exceptions,
            reasons=self._reasons,
        )

    def _answer(self, at: int, body: bytes | CompleteResponse, form: RowsForm = None) -> None:
        if isinstance(body, CompleteResponse):
            self._complete[at], self.bodies[at] = body, body.body
        else:
            self.bodies[at], self._forms[at] = body, form

    def _try(
        self, group: Sequence[int]
    ) -> Sequence[tuple[bytes | CompleteResponse, RowsForm]] | BaseException:
        requests = self._requests.pick(group)
        try:
            # Merged again, as the handler may have changed its argument.
            merged = merge(self._adapter, requests)
            with NamingHandler(self._method):
                return list(zip(*self._call(requests, merged), strict=True))
        except Stopped:
            raise
        except BaseException as error:
            return error

    def _merged(self, requests: BatchRequests) -> Any:
        """Return the rows of all requests; None if the adapter raises."""
        try:
            return merge(self._adapter, requests)
        except InvalidInput:
            return None
        except Stopped:
            raise
        except BaseException as error:
            if len(requests.bodies) > 1:
                self._warn_of_search(len(requests.bodies), error)
            return None

    def _mergeable(self) -> list[int]:
        """Return the requests that can be merged alone; answer the others, with 400 if they are invalid."""
        faults: dict[int, BaseException] = {}
        mergeable = []
        for at in self._valid:
            try:
                merge(self._adapter, self._requests.pick([at]))
                mergeable.append(at)
            except InvalidInput as error:
                self._answer(at, CompleteResponse(_INVALID, str(error).encode()))
                if any(isinstance(piece, RowPath) for piece in error.args):
                    self._reasons[at] = list(error.args)
            except Stopped:
                raise
            except BaseException as error:
                faults[at] = error
        self._fail_each(faults)
        return mergeable

    def _call(self, requests: BatchRequests, merged: Any) -> SplitResults:
        """Call the handler with one chunk of the rows after the other; return one body per request."""
        sizes = self._batch.allowed_batch_sizes
        costs = [*chain.from_iterable(requests.costs)]
        most_rows = None if sizes is None else sizes[-1]
        chunks = cut_chunks(sum(requests.rows), costs, limit=self._batch.limit_rows, most_rows=most_rows)
        encoded: list[Encoded | Array] = []
        done = 0
        for count, cost in chunks:
            began = time.perf_counter()
            rows = merged if len(chunks) == 1 else merged[done : done + count]
            size = padded_size(count, sizes)
            with costing(with_copies(costs[done : done + count], size)) if costs else nullcontext():
                self.returned = self._handler(with_copies(rows, size))
            chunk = without_copies(self._encode(self.returned, size, raw=requests.raw), count)
            if len(chunks) > 1:
                # The next call of the handler may reuse the same arrays.
                chunk = chunk.copied()
            encoded.append(chunk)
            self.chunks.append((cost, time.perf_counter() - began))
            done += count
        if not encoded:
            return SplitResults([], [])
        return split_results(join_chunks(encoded), requests.rows, requests.raw)

    def _encode(self, results: object, expected: int, *, raw: Sequence[Wanted]) -> Encoded | Array:
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

    def _warn_of_search(self, requests: int, error: BaseException) -> None:
        log.warning(
            "API %s failed on a batch of %d requests; running parts of it to find the failing ones: %s",
            *(self._batch.api, requests, repr_of(error)),
        )

    def _fail_each(self, errors: Mapping[int, BaseException]) -> None:
        """Answer requests with 500. If there are many, requests with the same error share an error id."""
        alike: dict[tuple[ExceptionReport, int | None], list[int]] = {}
        for at, error in errors.items():
            own = at if len(errors) <= _MOST_IDS else None
            alike.setdefault((exception_report(error, self._method), own), []).append(at)
        for group in alike.values():
            self._fail(group, errors[group[0]])
        for error in errors.values():
            release(error)

    def _fail(self, group: Sequence[int], error: BaseException) -> None:
        """Answer requests with 500 and an error id that the log has too."""
        error_id = uuid.uuid4().hex[:12]
        api, rows = self._batch.api, sum(self._requests.rows[at] for at in group)
        log.error("API %s failed on a batch of %s [%s]", api, plural(rows, "row"), error_id, exc_info=error)
        self._exceptions.append(exception_report(error, self._method, error_id=error_id, requests=len(group)))
        detail = f"the handler of API {api!r} failed; error id {error_id}".encode()
        for at in group:
            self._answer(at, CompleteResponse(_FAILED, detail))


class StreamRun(BatchRun):
    """A batch of one request whose response is streamed while the handler runs.

    The handler returns a ``Rejected`` instead of streaming, or None.
    """

    def _call(self, requests: BatchRequests, merged: Any) -> SplitResults:
        if not requests.bodies:
            return SplitResults([], [])
        rejected = self._handler(merged)
        body = b"" if rejected is None else CompleteResponse(rejected.status, rejected.detail.encode())
        return SplitResults([body], [None])
