"""Runs one batch inside the worker: merge, call the handler, deal out the results."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.hints import Hinting, telling_of_blocks
from uncork_workers.definition.outputs import Answer, Array, Encoded, Rejected, as_array, encode, encode_each
from uncork_workers.definition.outputs.split import Dealt, deal, joined
from uncork_workers.definition.service import ApiDefinition, Service, find_apis
from uncork_workers.plural import plural
from uncork_workers.process.bisection import bisect
from uncork_workers.process.chunks import Requests, cut, interleaved
from uncork_workers.process.context import Context, running
from uncork_workers.process.padding import pad, padded_size, without_surplus
from uncork_workers.process.raised import describe
from uncork_workers.process.streaming import Outlet, Stream
from uncork_workers.wire.messages import (
    Batch,
    ExceptionReport,
    Form,
    RawForm,
    Reply,
    RowPath,
    RowsForm,
    TableForm,
    TensorForm,
    compact_forms,
    expand_forms,
)

log = logging.getLogger("uncork.worker")

_OK = 200
_INVALID = 400
_FAILED = 500
_SHARE_OF_TIMEOUT = 0.9


class Executor:
    """Runs the batches of one service object. One with generators needs an ``outlet`` for what they yield."""

    def __init__(self, service: Service, outlet: Outlet | None = None) -> None:
        self._service = service
        self._outlet = outlet
        self._apis = {definition.name: definition for definition in find_apis(type(service))}
        # One loop for all batches: what a handler opens in one, it can use in the next.
        self._loop = asyncio.Runner()
        self._handlers = {name: self._hinting(self._plain(getattr(service, name))) for name in self._apis}

    def close(self) -> None:
        """Give the event loop of asynchronous handlers back."""
        self._loop.close()

    def _hinting(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A handler that puts hints on what it raises."""

        def call(rows: Any) -> Any:
            with Hinting(self._service, rows):
                return handler(rows)

        return call

    def _plain(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A handler as a function that returns when it is done."""
        if not inspect.iscoroutinefunction(handler):
            return handler
        handler = telling_of_blocks(handler, handler.__name__)
        return lambda rows: self._loop.run(handler(rows), context=copy_context())

    def rehearse(self, batch: Batch, bodies: Sequence[bytes]) -> object:
        """Run a batch for which nobody waits; returns what the last call of the handler returned.

        Raises:
            Exception: what the handler raised, or why it was not called.
        """
        returned: object = None

        def handler(rows: object) -> object:
            nonlocal returned
            returned = self._handlers[batch.api](rows)
            return returned

        with running(self._context(batch)):
            run = _Running(self._apis[batch.api], handler, batch, bodies)
            run.run()
            if not run.chunks:
                raise InvalidInput(run.answers[0].decode())
        return returned

    def _stream(self, batch: int, handler: Callable[[Any], Any], rows: Any) -> Rejected | None:
        """Send what a generator yields; returns what it yielded instead of an answer."""
        assert self._outlet is not None
        stream, pieces = Stream(batch, self._outlet), handler(rows)
        with Hinting(self._service, rows):
            if isinstance(pieces, AsyncGenerator):
                self._loop.run(stream.run_async(pieces), context=copy_context())
            else:
                stream.run(pieces)
        return stream.refusal

    def _context(self, batch: Batch) -> Context:
        now = time.monotonic()
        traceparent, tracestate = batch.trace or ("", "")
        return Context(
            batch_id=batch.id,
            api=batch.api,
            worker_index=self._service.worker_index,
            requests=len(batch.rows),
            rows=sum(batch.rows),
            due=tuple([now + left_s for left_s in batch.left_s]),
            traceparent=traceparent,
            tracestate=tracestate,
        )

    def run(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Reply, list[bytes]]:
        """Run a batch; every request gets a status and a body, whatever happens."""
        with running(self._context(batch)):
            return self._run(batch, bodies)

    def _run(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Reply, list[bytes]]:
        began = time.perf_counter()
        definition, handler = self._apis[batch.api], self._handlers[batch.api]
        if definition.description.streams:
            run: _Running = _Streaming(definition, partial(self._stream, batch.batch, handler), batch, bodies)
        else:
            run = _Running(definition, handler, batch, bodies)
        failure: BaseException | None = None
        try:
            run.run()
        except (Exception, SystemExit) as error:
            failure = error
        if failure is not None:
            run.run_parts(failure, took_s=time.perf_counter() - began)
        answers = run.answers
        reply = Reply(
            batch=batch.batch,
            worked=failure is None,
            seconds=time.perf_counter() - began,
            statuses=run.statuses,
            lengths=list(map(len, answers)),
            chunks=run.chunks,
            forms=compact_forms(run.forms),
            content_types=run.content_types,
            headers=run.headers,
            exceptions=run.raised or ([] if failure is None else [describe(failure)]),
            reasons=run.reasons,
        )
        return reply, answers


class _Running:
    """A batch on its way. Requests go by their position in it."""

    def __init__(
        self, api: ApiDefinition, handler: Callable[[Any], Any], batch: Batch, bodies: Sequence[bytes]
    ) -> None:
        self._adapter = api.adapter
        self._handler = handler
        self._batch = batch
        costs = batch.rows if batch.costs is None else batch.costs
        forms = expand_forms(batch.forms, len(bodies))
        self._requests = Requests(bodies, batch.rows, costs, forms, batch.metas or (), batch.raw or ())
        self._valid: Sequence[int] = range(len(bodies))
        self.statuses = [_OK] * len(bodies)
        self.answers = [b""] * len(bodies)
        self.chunks: list[tuple[float, float]] = []
        self.content_types: list[str] | None = None
        self.headers: list[list[tuple[str, str]]] | None = None
        self.forms: list[RowsForm] = [None] * len(bodies)
        self.reasons: dict[int, list[str | RowPath]] = {}
        self.raised: list[ExceptionReport] = []
        """The exceptions for which requests got 500."""

    def run(self) -> None:
        """Answer all; only if they cannot be merged look for those to blame, and leave them out."""
        requests = self._requests
        try:
            merged = self._merge(requests)
        except InvalidInput:
            self._valid = [at for at in self._valid if self._is_valid(at)]
            requests = requests.pick(self._valid)
            merged = self._merge(requests) if self._valid else ()
        dealt = self._call(requests, merged)
        if len(dealt.answers) == len(self.answers) and set(map(type, dealt.answers)) == {bytes}:
            self.answers, self.forms = dealt  # type: ignore[assignment]
            return
        for at, answer, form in zip(self._valid, *dealt, strict=True):
            self._give(at, answer, form)

    def run_parts(self, error: BaseException, *, took_s: float) -> None:
        """Answer all although :meth:`run` failed after ``took_s``: only those that fail alone get 500."""
        valid, api = self._valid, self._batch.api
        if len(valid) == 1 or not self._batch.idempotent:
            self._fail(valid, error)
            return
        log.warning("api %s failed on %d requests, looking for the culprit: %r", api, len(valid), error)
        # Who looks for longer than the gateway waits is killed, and nobody is answered. No part takes longer.
        ends = time.perf_counter() + _SHARE_OF_TIMEOUT * self._batch.timeout_s - 2 * took_s
        found = bisect(valid, lambda group: self._try(group) if time.perf_counter() < ends else error)
        for at, (answer, form) in found.results.items():
            self._give(at, answer, form)
        for at, reason in found.culprits.items():
            self._fail([at], reason)
        if found.given_up:
            self._fail(found.given_up, error)

    def _give(self, at: int, answer: bytes | Answer, form: RowsForm) -> None:
        """Answer a request with its rows, or with something of its own."""
        if isinstance(answer, bytes):
            self.statuses[at], self.answers[at], self.forms[at] = _OK, answer, form
            return
        self.statuses[at], self.answers[at] = answer.status, answer.body
        if answer.content_type:
            self.content_types = self.content_types or [""] * len(self.answers)
            self.content_types[at] = answer.content_type
        if answer.headers:
            self.headers = self.headers or [[] for _ in self.answers]
            self.headers[at] = list(answer.headers)

    def _try(self, group: Sequence[int]) -> Sequence[tuple[bytes | Answer, RowsForm]] | BaseException:
        """Run some requests by themselves, merged again: the handler may have changed what it was given."""
        requests = self._requests.pick(group)
        try:
            return list(zip(*self._call(requests, self._merge(requests)), strict=True))
        except (Exception, SystemExit) as error:
            return error

    def _merge(self, requests: Requests) -> Any:
        """The rows of all requests; each form is parsed in one go."""
        forms = requests.forms
        if forms and forms.count(forms[0]) == len(forms):
            return self._merge_alike(requests, forms[0])
        groups = requests.by_form()
        merged = [self._merge_alike(requests.pick(group), form) for form, group in groups.items()]
        return interleaved([*groups.values()], merged, requests.rows)

    def _merge_alike(self, requests: Requests, form: Form) -> Any:
        bodies, rows, metas = requests.bodies, requests.rows, requests.metas
        match form:
            case None:
                merged = self._adapter.merge(bodies)
            case TensorForm():
                merged = self._adapter.merge_tensors(bodies, form, rows)
            case TableForm(header):
                merged = self._adapter.merge_table(bodies, header, rows)
            case RawForm():
                merged = self._adapter.merge_raw(bodies, metas)
        if len(merged) != sum(rows):
            raise InvalidInput(f"{plural(len(merged), 'row')} where {sum(rows)} were counted")
        return merged

    def _is_valid(self, at: int) -> bool:
        """Whether a request is what the api accepts; if not, it is answered."""
        try:
            self._merge(self._requests.pick([at]))
        except InvalidInput as error:
            self.statuses[at], self.answers[at] = _INVALID, str(error).encode()
            if any(isinstance(piece, RowPath) for piece in error.args):
                self.reasons[at] = list(error.args)
            return False
        return True

    def _call(self, requests: Requests, merged: Any) -> Dealt:
        """Call the handler with one part of the rows after the other; returns one answer per request."""
        parts = cut(requests.rows, requests.costs, self._batch.limit_rows)
        encoded: list[Encoded | Array] = []
        done = 0
        for count, cost in parts:
            began = time.perf_counter()
            rows = merged if len(parts) == 1 else merged[done : done + count]
            size = padded_size(count, self._batch.allowed_batch_sizes)
            results = self._handler(pad(rows, size))
            some = without_surplus(self._encode(results, size, raw=any(requests.raw)), count)
            if isinstance(some, Array) and len(parts) > 1:
                # The next call of the handler may fill the same array again.
                some = some._replace(values=some.values.copy())
            encoded.append(some)
            self.chunks.append((cost, time.perf_counter() - began))
            done += count
        return deal(joined(encoded), requests.rows, requests.raw) if encoded else Dealt([], [])

    def _encode(self, results: object, expected: int, *, raw: bool) -> Encoded | Array:
        if self._adapter.answers_each:
            return encode_each(results, expected=expected)
        array = as_array(results, expected=expected) if raw else None
        return encode(results, expected=expected, accept=self._batch.accept) if array is None else array

    def _fail(self, group: Sequence[int], error: BaseException) -> None:
        """Answer a group with an id, under which the log has the rest."""
        error_id = uuid.uuid4().hex[:12]
        api, rows = self._batch.api, sum(self._requests.rows[at] for at in group)
        log.error("api %s failed on a batch of %s [%s]", api, plural(rows, "row"), error_id, exc_info=error)
        self.raised.append(describe(error, error_id=error_id, requests=len(group)))
        answer = f"the handler of api {api!r} failed; error id {error_id}".encode()
        for at in group:
            self.statuses[at], self.answers[at] = _FAILED, answer


class _Streaming(_Running):
    """A batch of one request, whose answer leaves in pieces while the handler runs."""

    def _call(self, requests: Requests, merged: Any) -> Dealt:
        """Call the handler with all rows; what is left to answer is nothing, or a refusal."""
        if not requests.bodies:
            return Dealt([], [])
        refusal = self._handler(merged)
        return Dealt([b"" if refusal is None else Answer(refusal.status, refusal.detail.encode())], [None])
