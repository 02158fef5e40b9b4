"""One batch inside the worker: run its requests, search for those at fault, and make the reply."""

import logging
import math
import time
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec.structs import replace

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.adapters.base import parse_json
from uncork_workers.definition.outputs.encoding import OK, CompleteResponse
from uncork_workers.definition.outputs.split import SplitResults
from uncork_workers.definition.service import ApiDefinition
from uncork_workers.plural import plural
from uncork_workers.process.batches.chunks import by_request
from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.batches.failures import Failure, reason_of, release, repr_of
from uncork_workers.process.batches.handler_calls import HandlerCalls, Result
from uncork_workers.process.batches.merging import BatchRequests
from uncork_workers.process.batches.search import Search
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.process.children import Stopped
from uncork_workers.process.context import NO_PARAMETERS
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.costs import Extent
from uncork_workers.wire.forms import RowsForm, compact_forms, expand_forms
from uncork_workers.wire.json_faults import json_fault
from uncork_workers.wire.messages import Batch, ExceptionReport, Reply, RowPath

log = logging.getLogger("uncork.worker")

_INVALID = 400
_GONE = 499
_FAILED = 500
_TIMED_OUT = 504
_SHARE_OF_TIMEOUT = 0.9
_MOST_IDS = 4
_BYTES = frozenset((bytes,))
_ROWS = CompleteResponse(OK, b"")
_NOBODYS = CompleteResponse(_GONE, b"")


class BatchRun:
    """The execution of one batch. Requests are identified by their position in the batch.

    ``limit`` is the size of the API's calls that fits into memory; the batch adds to what it has learned.
    ``sink`` knows which clients have left; None if nobody can.
    """

    _memory_failures = 0
    _valid: Sequence[int] = ()
    _worked = True

    def __init__(
        self,
        api: ApiDefinition,
        handler: Callable[[Any], Any],
        batch: Batch,
        bodies: Sequence[bytes],
        limit: SizeLimit,
        sink: GatewayConnection | None = None,
    ) -> None:
        count = len(bodies)
        # The gateway ends other batches by killing the worker, which runs nothing else.
        due = time.monotonic() + batch.timeout_s if api.description.concurrency > 1 else math.inf
        self.departures = None if sink is None else Departures(sink, batch.batch, count, due)
        self._adapter = api.adapter
        self._api = api
        self._batch = batch
        self._requests = BatchRequests(
            bodies,
            batch.rows,
            expand_forms(batch.forms, count),
            () if batch.costs is None else by_request(batch.costs, batch.rows),
            batch.metas or (),
            batch.raw or (),
            list(map(_parameters_of, batch.parameters or ())),
            _classes_of(batch, api.description.classes) if api.description.classes else (),
            range(count),
        )
        self.calls = HandlerCalls(api, handler, batch, limit, self.departures)
        self._complete: dict[int, CompleteResponse] = {}
        self._forms: list[RowsForm] = [None] * count
        self._reasons: dict[int, list[str | RowPath]] = {}
        self._exceptions: list[ExceptionReport] = []
        self._began = self._portion_began = time.perf_counter()
        self.bodies = [b""] * count
        """The bodies of the responses."""

    def portions(self) -> list[range]:
        """Return the requests to run at a time: all, unless their rows together take too much memory."""
        bodies, metas = self._requests.bodies, self._requests.metas
        if not metas or len(bodies) == 1:
            return [range(len(bodies))]
        counts = self._adapter.portions(bodies, metas)
        return [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]

    def run(self, portion: range) -> None:
        """Answer the requests of a portion. If they cannot be merged, find those at fault and run the others.

        Raises:
            BaseException: what the handler raised, or CancelledError if all clients have left;
                :meth:`run_parts` answers them then.
        """
        requests, merged = self._merge(portion)
        self._take(self.calls.call(requests, merged))

    def _merge(self, portion: range) -> tuple[BatchRequests, Any]:
        """Return those requests of a portion that are valid, and their rows."""
        self._portion_began = time.perf_counter()
        self.calls.returned = None  # it may refer to the rows of the portion before
        self._valid = portion
        self.calls.stop_if_cancelled()
        requests = self._requests if len(portion) == len(self.bodies) else self._requests.pick(portion)
        try:
            merged = self.calls.merge(requests)
        except Stopped:
            raise
        except BaseException as error:
            if len(requests.bodies) > 1 and not isinstance(error, InvalidInput):
                self._warn_of_search(len(requests.bodies), repr_of(error))
            if len(portion) == 1 and isinstance(error, InvalidInput):
                self._refuse(portion[0], error)
                self._valid = ()
            release(error)  # an adapter may raise one object again and again
            merged = None
        if merged is None:
            self._valid = self._mergeable()
            requests = self._requests.pick(self._valid)
            merged = self.calls.merge(requests) if self._valid else ()
        return requests, merged

    def _take(self, results: SplitResults) -> None:
        """Answer the valid requests of a portion with the results of their rows."""
        if len(results.bodies) == len(self.bodies) and _BYTES.issuperset(map(type, results.bodies)):
            self.bodies, self._forms = results  # type: ignore[assignment]
            return
        for at, body, form in zip(self._valid, *results, strict=True):
            self._answer(at, body, form)

    def run_parts(self, error: BaseException) -> None:
        """Answer the requests of a portion after :meth:`run` failed, and release the exception.

        Requests that succeed in a smaller part get results.
        """
        self._worked = False
        if self._is_cancellation(error):
            for at in self._valid:
                self._answer(at, self._unfinished())
            return
        reported = len(self._exceptions)
        failure = self._failure(error)
        self._search(failure)
        if len(self._exceptions) == reported:
            self._exceptions.append(failure.report)
        failure.release()

    def _is_cancellation(self, error: BaseException) -> bool:
        """Return True if a call ended because all clients of the batch have left, or its time was up."""
        departures = self.departures
        is_ended = departures is not None and (departures.cancelled or departures.timed_out)
        return is_ended and isinstance(error, CancelledError)

    def _unfinished(self) -> CompleteResponse:
        """Return the response to a request whose call was cancelled."""
        if self.departures is None or not self.departures.timed_out:
            return _NOBODYS
        text = f"the batch ran past the timeout of API {self._batch.api!r}, {self._batch.timeout_s:g} s"
        return CompleteResponse(_TIMED_OUT, text.encode())

    def _live(self, group: Sequence[int]) -> Sequence[int]:
        """Return the requests whose clients still wait."""
        left = None if self.departures is None else self.departures.left()
        return [at for at in group if at not in left] if left else group

    def _failure(self, error: BaseException) -> Failure:
        """Report an exception, and free what the failed call has allocated."""
        rows, size = self.calls.last
        failure = Failure(error, self._api.methods[-1], rows=rows, size=size)
        self.calls.returned = None
        self._memory_failures += failure.is_out_of_memory
        return failure

    def _search(self, failure: Failure) -> None:
        """Answer the requests of a portion that failed, those that can be in smaller parts."""
        valid, calls, rows = self._valid, self.calls, self._requests.rows
        if not self._live(valid):  # nobody needs to know which of them are at fault
            self._fail(valid, failure)
            return
        is_alone = len(valid) == 1 and (not failure.is_out_of_memory or rows[valid[0]] == 1)
        # Of a stream, some of the response may have been sent.
        if is_alone or not self._batch.idempotent or self._api.description.streams:
            if failure.is_out_of_memory and not is_alone:
                calls.limit.failed(failure.size)
            self._fail(valid, failure)
            return
        if not failure.is_out_of_memory:
            self._warn_of_search(len(valid), failure.text_of_error)
        costs = self._requests.costs or [()] * len(rows)
        extents = {at: Extent(rows[at], sum(costs[at]), max(costs[at], default=0.0)) for at in valid}
        left = tuple if self.departures is None else self.departures.left
        search: Search[Result, Failure] = Search(
            extents, failure, size=calls.sizes.size, limit=calls.limit, left=left
        )
        # At the timeout the gateway kills the worker, and no request of the batch is answered. A part can
        # take as long as the failed run, so stop in time.
        took_s = time.perf_counter() - self._portion_began
        calls.ends = self._began + _SHARE_OF_TIMEOUT * self._batch.timeout_s - took_s
        while search.part is not None and time.perf_counter() < calls.ends:
            calls.limit = search.limit
            search.ran(self._try(search.part))
        search.stop()
        calls.limit, calls.ends = search.limit, math.inf
        for at, (body, form) in search.results.items():
            self._answer(at, body, form)
        self._fail_each(search.faults)

    def reply(self) -> Reply:
        """Return the reply that goes with ``bodies``."""
        calls, departures = self.calls, self.departures
        cancelled = departures is not None and departures.noticed
        reply = Reply(
            batch=self._batch.batch,
            worked=self._worked and not cancelled,
            seconds=time.perf_counter() - self._began,
            statuses=[OK] * len(self.bodies),
            lengths=list(map(len, self.bodies)),
            chunks=calls.chunks,
            forms=compact_forms(self._forms),
            exceptions=self._exceptions,
            reasons=self._reasons,
            limit=None if calls.limit.most == math.inf else calls.limit.most,
            memory_failures=self._memory_failures,
            cancelled=cancelled,
            timed_out=not self._worked and departures is not None and departures.timed_out,
        )
        if self._complete:
            reply = self._with_complete(reply)
        return reply if calls.metrics.is_empty else calls.metrics.added_to(reply)

    def _with_complete(self, reply: Reply) -> Reply:
        """Return the reply with what only complete responses have."""
        responses = [self._complete.get(at, _ROWS) for at in range(len(self.bodies))]
        media_types = [one.content_type for one in responses]
        headers = [list(one.headers) for one in responses]
        return replace(
            reply,
            statuses=[one.status for one in responses],
            content_types=media_types if any(media_types) else None,
            headers=headers if any(headers) else None,
        )

    def _answer(self, at: int, body: bytes | CompleteResponse, form: RowsForm = None) -> None:
        if isinstance(body, CompleteResponse):
            self._complete[at], self.bodies[at] = body, body.body
        else:
            self.bodies[at], self._forms[at] = body, form

    def _try(self, group: Sequence[int]) -> Sequence[Result] | Failure:
        live = self._live(group)
        try:
            results = self.calls.results(self._requests.pick(live)) if live else ()
            if len(results) == len(group):
                return results
            answers = dict(zip(live, results, strict=True))
            return [answers.get(at, (_NOBODYS, None)) for at in group]
        except Stopped:
            raise
        except BaseException as error:
            failed = error
        if self._is_cancellation(failed):
            return [(self._unfinished(), None)] * len(group)
        failure = self._failure(failed)
        if len(group) > 1:
            failure.release()
        return failure

    def _mergeable(self) -> list[int]:
        """Return the requests that can be merged alone; answer the others, with 400 if they are invalid."""
        faults: dict[int, Failure] = {}
        mergeable = []
        for at in self._valid:
            try:
                self.calls.merge(self._requests.pick([at]))
                mergeable.append(at)
            except InvalidInput as error:
                self._refuse(at, error)
                release(error)
            except Stopped:
                raise
            except BaseException as error:
                faults[at] = self._failure(error)
        self._fail_each(faults)
        return mergeable

    def _refuse(self, at: int, error: InvalidInput) -> None:
        """Answer a request with 400."""
        text, pieces = reason_of(error)
        self._answer(at, CompleteResponse(_INVALID, text.encode()))
        if pieces:
            self._reasons[at] = pieces

    def _warn_of_search(self, requests: int, error: str) -> None:
        log.warning(
            "API %s failed on a batch of %d requests; running parts of it to find the failing ones: %s",
            *(self._batch.api, requests, error),
        )

    def _fail_each(self, failures: Mapping[int, Failure]) -> None:
        """Answer requests with 500. If there are many, requests with the same error share an error id."""
        alike: dict[tuple[ExceptionReport, int | None], list[int]] = {}
        for at, failure in failures.items():
            own = at if len(failures) <= _MOST_IDS else None
            alike.setdefault((failure.report, own), []).append(at)
        for group in alike.values():
            self._fail(group, failures[group[0]])
        for failure in failures.values():
            failure.release()

    def _fail(self, group: Sequence[int], failure: Failure) -> None:
        """Answer requests with 500 and an error id that the log has too."""
        error_id = uuid.uuid4().hex[:12]
        api, rows = self._batch.api, sum(self._requests.rows[at] for at in group)
        failure.log(log, f"API {api} failed on a batch of {plural(rows, 'row')} [{error_id}]")
        self._exceptions.append(replace(failure.report, id=error_id, requests=len(group)))
        detail = f"the handler of API {api!r} failed; error id {error_id}".encode()
        for at in group:
            self._answer(at, CompleteResponse(_FAILED, detail))


def _parameters_of(text: bytes) -> Mapping[str, Any] | InvalidInput:
    """Return the parameters of a request; if they cannot be read, the reason for its client."""
    try:
        return parse_json(text) if text else NO_PARAMETERS
    except (ValueError, RecursionError) as error:
        return InvalidInput(f"the parameters cannot be read: {json_fault(text, error)}")


def _classes_of(batch: Batch, names: Iterable[str]) -> list[str]:
    """Return the name of each request's class; ``names`` are the first and the second."""
    first, second = names
    return [second if is_bulk else first for is_bulk in batch.bulk or [False] * len(batch.rows)]
