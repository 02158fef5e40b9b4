"""Executes batches as calls to model servers: merge, call, split, and bisect a failed call."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from uncork_dispatcher import (
    Batch,
    BatchResult,
    OnBatchEnd,
    Submission,
    TaskRunner,
    WorkerLost,
    payloads_of,
)
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.errors import BadGateway
from uncork_gateway.headers import TRACE, Header, path_of, with_request_id
from uncork_gateway.protocols.raw_json import Malformed
from uncork_gateway.protocols.wire import Content, Mergeable, Wire, WrongReply
from uncork_workers.wire.costs import Extent, cut

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import RequestSpan

log = logging.getLogger("uncork.gateway")

_MOST_FAILING = 4
# Of Triton, and of TensorFlow Serving with batching. Both check the number before they run anything. Behind
# the start of an error, servers may quote a client's values, and a client must not limit the calls of others.
_ACCEPTED_ROWS = re.compile(
    r'(?:\s*\{\s*"error"\s*:\s*")?'
    r"(?:(?:\[request id: [^]]*\] )?inference request batch-size must be <= (\d+) for "
    r"|Task size \d+ is larger than maximum input batch size (\d+))"
)
_LONGEST_TEXT = 1000
# Complaints have the paths of clients, and what their rows have made of a response.
_MOST_COMPLAINTS = 100
_LONGEST_PATH = 100
# Statuses that a server may answer because of a single request in the call.
_MAYBE_ONE = (400, 413, 422, 500)
# Statuses of a server that more calls would not help.
_BUSY = (429, *range(501, 600))
_DIED = "the model server died while running this request"
_UNSPLIT = "the response of the model server to a call with the requests of several clients cannot be split"

T = TypeVar("T")
Ask = Callable[[range], Awaitable[list[T] | ServerResponse]]
"""Makes one call for some requests of a batch; returns their results, or a refusal of all."""


def accepted_rows(refusal: ServerResponse) -> int | None:
    """Return the most rows that the server accepts in a call, if it says so in a refusal; else None."""
    call = refusal.call
    text = refusal.body[:_LONGEST_TEXT].decode("latin-1") if call is None else call.text
    found = _ACCEPTED_ROWS.match(text)
    return int(found[found.lastindex or 0]) if found else None


def refused(requests: Sized, refusal: ServerResponse) -> list[ServerResponse]:
    """Return a result for each request of a refused call.

    The refusal may quote any of the requests, so its text is passed on only to a single request.
    """
    return [refusal] if len(requests) == 1 else [refusal.for_several()] * len(requests)


async def ask_or_bisect(group: range, ask: Ask[T]) -> list[T | ServerResponse]:
    """Return the results of requests in one call; if the server refuses it, find the requests at fault."""
    answers = await ask(group)
    return [*answers] if isinstance(answers, list) else await bisect(group, answers, ask)


async def bisect(group: range, refusal: ServerResponse, ask: Ask[T]) -> list[T | ServerResponse]:
    """Find the requests that make a call fail, and get the results of all others.

    The server has refused the call for the whole group. Level by level, each refused group is halved, and
    each half is sent again: with one bad request, that is two calls per level, at most 2 * ceil(log2(count)).
    A request gets the response to the last group that contained it; a refusal of several requests loses its
    text. If more than four groups of a level are refused, no single request is the cause, and the search
    ends. If the server then accepts one of the requests alone, it cannot run merged calls, and the others are
    sent alone too.
    """
    answers: dict[int, T | ServerResponse] = dict(zip(group, refused(group, refusal), strict=True))
    failing = [group]

    async def is_refused(part: range) -> bool:
        answer = await ask(part)
        each = refused(part, answer) if isinstance(answer, ServerResponse) else answer
        answers.update(zip(part, each, strict=True))
        return isinstance(answer, ServerResponse)

    while 0 < len(failing) <= _MOST_FAILING:
        halves = [
            half for part in failing if (middle := len(part) // 2) for half in (part[:middle], part[middle:])
        ]
        failing = [half for half in halves if await is_refused(half)]
    left = [part[at : at + 1] for part in failing if len(part) > 1 for at in range(len(part))]
    if left and not await is_refused(left[0]):
        for alone in left[1:]:
            await is_refused(alone)
    return [answers[at] for at in group]


class Sent(NamedTuple):
    """One request, or part of one, for a server. All of a batch share wire, target and keyed headers.

    Attributes:
        target: path and query, or the path of a gRPC method.
        headers: the headers for a merged call.
        original: the client's unchanged request, with all headers; None for a part of a request.
        unchanged: True if the call must be the original. Such a request is alone in its batch.
        expires_at: the time of the client's timeout, by the clock of :class:`MergedCalls`.
        request_id: the request's id, which goes with calls for this request alone.
        span: the request's span if it is traced.
    """

    request: Mergeable
    wire: Wire[Any, Any]
    target: bytes
    headers: tuple[Header, ...]
    original: Content | None
    unchanged: bool = False
    expires_at: float = math.inf
    request_id: bytes = b""
    span: RequestSpan | None = None


class Part(NamedTuple):
    """One request's share of the reply to a merged call, and the wire that reads it."""

    reply: Any


CallResult = Part | ServerResponse | BadGateway
"""The result of a merged call for one request; the client gets a response unchanged."""


Calls = Batch[Submission[Sent, CallResult]]


class MergedCalls(TaskRunner[Sent, CallResult]):
    """Runs each batch as one call, or as several if a single request may have made that call fail.

    The calls of a batch run one after another, on the batch's slot. They end when all its clients have left:
    a closed connection, or a cancelled gRPC call, is how a server learns that no client waits.

    Args:
        trace: starts a span for a batch and returns its ``traceparent`` and ``tracestate``.
        limited: receives an API and the most rows that a server accepts in a call for it.
    """

    def __init__(
        self,
        servers: Servers[Any],
        *,
        trace: Callable[[Batch[Any]], tuple[str, str]] | None = None,
        limited: Callable[[str, int], None] = lambda api, rows: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._execute)
        self._servers = servers
        self._trace = trace
        self._traces: dict[int, tuple[str, str]] = {}
        """The trace headers of batches whose call has not begun, by number."""
        self._limited = limited
        self._clock = clock
        self._complaints: set[str] = set()

    def start(self, batch: Calls, ended: OnBatchEnd[CallResult]) -> None:
        """Take the slot now, and start the call in the next turn of the event loop."""
        if self._trace is not None:
            self._traces[batch.number] = self._trace(batch)
        self._servers.take(batch.worker)
        super().start(batch, partial(self._end, batch, ended))

    def abandon(self, batch: int, worker: int) -> None:
        """Cancel the call and close its connection. A new slot replaces the lost one when there is room."""
        super().abandon(batch, worker)
        self._traces.pop(batch, None)
        self._servers.drop(worker)

    def _end(
        self, batch: Calls, ended: OnBatchEnd[CallResult], outcome: BatchResult[CallResult] | Exception
    ) -> None:
        """Give the slot back; after a cancelled call, at the time at which the call would have ended.

        Many servers go on with a call whose connection has closed: a call for each client that leaves early
        would overload them.
        """
        if isinstance(outcome, BatchResult) and outcome.status == "cancelled":
            self._traces.pop(batch.number, None)
            left_s = batch.started + batch.predicted_s - self._clock()
            asyncio.get_running_loop().call_later(max(0.0, left_s), self._give_back, batch, ended, outcome)
        else:
            self._give_back(batch, ended, outcome)

    def _give_back(
        self, batch: Calls, ended: OnBatchEnd[CallResult], outcome: BatchResult[CallResult] | Exception
    ) -> None:
        self._servers.give_back(batch.worker)
        ended(outcome)

    async def _execute(self, batch: Calls) -> BatchResult[CallResult]:
        try:
            return await self._answers(batch.worker, batch)
        except WorkerLost:
            self._servers.lose(batch.worker)
            raise

    async def _answers(self, slot: int, batch: Calls) -> BatchResult[CallResult]:
        """Run one call, or several after a failure; a batch of several does not count for the estimate."""
        all_sent, whole = payloads_of(batch), range(len(batch.requests))
        if batch.number in self._traces:
            trace = self._traces.pop(batch.number)
            all_sent = [_in_trace(sent, trace) for sent in all_sent]

        async def ask(group: range) -> list[CallResult] | ServerResponse:
            return await self._ask(slot, all_sent[group.start : group.stop])

        answers = await ask(whole)
        if isinstance(answers, list):
            worked = all(isinstance(answer, Part) for answer in answers)
            return BatchResult(answers, "worked" if worked else "failed")
        results: list[CallResult] = [*refused(whole, answers)]
        most_rows = accepted_rows(answers)
        if most_rows is not None and len(all_sent) > 1:
            # The server has run nothing, so this repeats nothing.
            extents = [Extent(int(request.rows)) for request in batch.requests]
            parts = cut(extents, lambda call: call.rows <= most_rows)
            search = ask_or_bisect if self._servers.idempotent else _ask_only
            results = [result for part in parts for result in await search(part, ask)]
            if any(isinstance(result, Part) for result in results):
                self._limited(batch.api, most_rows)
        elif self._servers.idempotent:
            results = await bisect(whole, answers, ask)
        return BatchResult(results, "failed")

    async def _ask(self, slot: int, group: Sequence[Sent]) -> list[CallResult] | ServerResponse:
        """Call the server for a group; return each request's result, or a refusal of the whole group."""
        first = group[0]
        if first.unchanged and first.original is not None:
            return [await self._call(slot, group, first.original)]
        wire, requests = first.wire, [sent.request for sent in group]
        merged = wire.merge(requests)
        content = merged._replace(headers=(*merged.headers, *first.headers))
        response = await self._call(slot, group, content)
        if response.status in _MAYBE_ONE:
            return response
        if response.status != 200:
            if response.status // 100 == 2 and (len(group) > 1 or first.original is None):
                error = f"the model server returned {response.status} to a merged call"
                self._complain(first.target, error)
                return await self._ask_each(slot, group, BadGateway(error))
            if len(group) == 1 or response.status in _BUSY:
                return [*refused(group, response)]
            return await self._ask_each(slot, group, response.for_several())
        try:
            replies = wire.split(Content(response.body, response.headers), requests)
        except (WrongReply, Malformed) as error:
            self._complain(first.target, str(error))
            return await self._ask_each(slot, group, BadGateway(_UNSPLIT if len(group) > 1 else str(error)))
        return [Part(reply) for reply, _ in zip(replies, group, strict=True)]

    async def _ask_each(
        self, slot: int, group: Sequence[Sent], otherwise: ServerResponse | BadGateway
    ) -> list[CallResult]:
        """Send each request alone and unchanged, because the merged reply cannot be used.

        Requests that must not be repeated, and a part that already ran alone, get ``otherwise``.
        """
        if not self._servers.idempotent:
            return [otherwise] * len(group)
        answers: list[CallResult] = []
        for sent in group:
            if sent.original is not None:
                answers.append(await self._call(slot, [sent], sent.original))
            elif len(group) > 1:
                answer = await self._ask(slot, [sent])
                answers += [answer] if isinstance(answer, ServerResponse) else answer
            else:
                answers.append(otherwise)
        return answers

    async def _call(self, slot: int, group: Sequence[Sent], content: Content) -> ServerResponse:
        """Make a call, with the longest remaining timeout of the group's clients."""
        if len(group) == 1 and group[0].request_id:
            content = content._replace(headers=with_request_id(content.headers, group[0].request_id))
        time_left_s = max(sent.expires_at for sent in group) - self._clock()
        return await self._servers.call(slot, group[0].target, content, time_left_s=time_left_s)

    def _complain(self, target: bytes, fault: str) -> None:
        """Warn, once for each reason, that merging costs more than it saves; after 100, say no more."""
        path = path_of(target)[:_LONGEST_PATH].decode("latin-1")
        complaint = f"{path!r}: cannot split the response to a merged call: {fault[:_LONGEST_TEXT]}"
        if complaint not in self._complaints and len(self._complaints) < _MOST_COMPLAINTS:
            self._complaints.add(complaint)
            log.warning("%s; sending its requests individually, without batching", complaint)


async def _ask_only(group: range, ask: Ask[CallResult]) -> list[CallResult]:
    """Make one of several calls, of which none is repeated. If its server dies, the others still count."""
    try:
        answers = await ask(group)
    except WorkerLost:
        return [BadGateway(_DIED)] * len(group)
    return answers if isinstance(answers, list) else [*refused(group, answers)]


def _in_trace(sent: Sent, trace: tuple[str, str]) -> Sent:
    """Return a request with the trace headers of its own call."""
    original = sent.original
    if original is not None:
        original = Content(original.body, with_trace(original.headers, trace))
    return sent._replace(headers=with_trace(sent.headers, trace), original=original)


def with_trace(headers: Sequence[Header], trace: tuple[str, str]) -> tuple[Header, ...]:
    """Return the headers with ``traceparent`` and ``tracestate`` replaced; the latter may be empty."""
    kept = [header for header in headers if header[0] not in TRACE]
    return (*kept, *[(name, value.encode()) for name, value in zip(TRACE, trace, strict=True) if value])
