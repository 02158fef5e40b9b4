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

from uncork_workers.adapters import InvalidInput
from uncork_workers.bisection import bisect
from uncork_workers.context import Context, running
from uncork_workers.frames import Batch, Place, RawForm, Reply, TableForm, TensorForm
from uncork_workers.hints import Hinting, telling_of_blocks
from uncork_workers.outputs import Answer, Encoded, Rejected, WrongResult, encode, encode_each
from uncork_workers.outputs.dealing import deal, joined
from uncork_workers.padding import pad, padded_size, without_surplus
from uncork_workers.parts import Requests, cut
from uncork_workers.plural import plural
from uncork_workers.service import ApiDefinition, Service, find_apis
from uncork_workers.streaming import Outlet, Stream

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

    def rehearse(self, batch: Batch, bodies: Sequence[bytes]) -> None:
        """Run a batch for which nobody waits.

        Raises:
            Exception: what the handler raised, or why it was not called.
        """
        with running(self._context(batch)):
            run = _Running(self._apis[batch.api], self._handlers[batch.api], batch, bodies)
            run.run()
            if not run.chunks:
                raise InvalidInput(run.answers[0].decode())

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
        datatype, shape = run.kinds.pop() if len(run.kinds) == 1 else ("", None)
        reply = Reply(
            batch=batch.batch,
            worked=failure is None,
            seconds=time.perf_counter() - began,
            statuses=run.statuses,
            lengths=list(map(len, answers)),
            chunks=run.chunks,
            datatype=datatype,
            shape=None if shape is None else list(shape),
            content_types=run.content_types,
            headers=run.headers,
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
        self._requests = Requests(bodies, batch.rows, costs, batch.metas or ())
        self._valid: Sequence[int] = range(len(bodies))
        self.statuses = [_OK] * len(bodies)
        self.answers = [b""] * len(bodies)
        self.chunks: list[tuple[float, float]] = []
        self.content_types: list[str] | None = None
        self.headers: list[list[tuple[str, str]]] | None = None
        self.reasons: dict[int, list[str | Place]] = {}
        self.kinds: set[tuple[str, tuple[int, ...] | None]] = set()
        """Datatype, and shape of a raw row, of the results of each call that worked."""

    def run(self) -> None:
        """Answer all; only if they cannot be merged look for those to blame, and leave them out."""
        requests = self._requests
        try:
            merged = self._merge(requests)
        except InvalidInput:
            self._valid = [at for at in self._valid if self._is_valid(at)]
            requests = requests.pick(self._valid)
            merged = self._merge(requests) if self._valid else ()
        answers = self._call(requests, merged)
        if len(answers) == len(self.answers) and set(map(type, answers)) == {bytes}:
            self.answers = answers  # type: ignore[assignment]
            return
        for at, answer in zip(self._valid, answers, strict=True):
            self._give(at, answer)

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
        for at, answer in found.results.items():
            self._give(at, answer)
        for at, reason in found.culprits.items():
            self._fail([at], reason)
        if found.given_up:
            self._fail(found.given_up, error)

    def _give(self, at: int, answer: bytes | Answer) -> None:
        """Answer a request with its rows, or with something of its own."""
        if isinstance(answer, bytes):
            self.statuses[at], self.answers[at] = _OK, answer
            return
        self.statuses[at], self.answers[at] = answer.status, answer.body
        if answer.content_type:
            self.content_types = self.content_types or [""] * len(self.answers)
            self.content_types[at] = answer.content_type
        if answer.headers:
            self.headers = self.headers or [[] for _ in self.answers]
            self.headers[at] = list(answer.headers)

    def _try(self, group: Sequence[int]) -> Sequence[bytes | Answer] | BaseException:
        """Run some requests by themselves, merged again: the handler may have changed what it was given."""
        requests = self._requests.pick(group)
        try:
            return self._call(requests, self._merge(requests))
        except (Exception, SystemExit) as error:
            return error

    def _merge(self, requests: Requests) -> Any:
        bodies, rows, _, metas = requests
        match self._batch.form:
            case None:
                merged = self._adapter.merge(bodies)
            case TensorForm() as form:
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
            if any(isinstance(piece, Place) for piece in error.args):
                self.reasons[at] = list(error.args)
            return False
        return True

    def _call(self, requests: Requests, merged: Any) -> Sequence[bytes | Answer]:
        """Call the handler with one part of the rows after the other; returns one answer per request."""
        parts = cut(requests.rows, requests.costs, self._batch.limit_rows)
        encoded: list[Encoded] = []
        done = 0
        for count, cost in parts:
            began = time.perf_counter()
            rows = merged if len(parts) == 1 else merged[done : done + count]
            size = padded_size(count, self._batch.allowed_batch_sizes)
            results = self._handler(pad(rows, size))
            encoded.append(without_surplus(self._encode(results, size), count))
            self.chunks.append((cost, time.perf_counter() - began))
            done += count
        if not encoded:
            return []
        whole = joined(encoded)
        answers = deal(whole, requests.rows)
        if whole.has_rows:
            self._add_kind(whole.datatype, whole.shape)
        return answers

    def _add_kind(self, datatype: str, shape: tuple[int, ...] | None) -> None:
        """Note what results are; the gateway is told one shape of raw rows for the whole batch."""
        kinds = self.kinds | {(datatype, shape)}
        if len(kinds) > 1 and any(shape is not None for _, shape in kinds):
            raise WrongResult("results of one batch are arrays of different datatypes or shapes")
        self.kinds = kinds

    def _encode(self, results: object, expected: int) -> Encoded:
        if self._adapter.answers_each:
            return encode_each(results, expected=expected)
        return encode(results, expected=expected, accept=self._batch.accept)

    def _fail(self, group: Sequence[int], error: BaseException) -> None:
        """Answer a group with an id, under which the log has the rest."""
        error_id = uuid.uuid4().hex[:12]
        api, rows = self._batch.api, plural(sum(self._requests.rows[at] for at in group), "row")
        log.error("api %s failed on a batch of %s [%s]", api, rows, error_id, exc_info=error)
        answer = f"the handler of api {api!r} failed; error id {error_id}".encode()
        for at in group:
            self.statuses[at], self.answers[at] = _FAILED, answer


class _Streaming(_Running):
    """A batch of one request, whose answer leaves in pieces while the handler runs."""

    def _call(self, requests: Requests, merged: Any) -> Sequence[bytes | Answer]:
        """Call the handler with all rows; what is left to answer is nothing, or a refusal."""
        if not requests.bodies:
            return []
        refusal = self._handler(merged)
        return [b"" if refusal is None else Answer(refusal.status, refusal.detail.encode())]
