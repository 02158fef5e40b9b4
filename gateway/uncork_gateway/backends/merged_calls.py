"""Batches as calls to model servers: merge, call, split, and bisect a call that fails."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from uncork_dispatcher import BatchResult, Job, OnBatchEnd, TaskRunner, WorkerLost
from uncork_gateway.backends.http_server import ServerResponse
from uncork_gateway.backends.http_servers import HttpServers
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import Span
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import Content, Mergeable, Wire, WrongReply

log = logging.getLogger("uncork.gateway")

# Statuses that a server may answer because of a single request in the call.
_MAYBE_ONE = (400, 413, 422, 500)
_MOST_FAILING = 4
_TIMEOUT = b"x-request-timeout-ms"
_TRACE = (b"traceparent", b"tracestate")
# Other headers of an answer to a merged call do not apply to its requests.
_RELAYED = frozenset(
    (
        *(b"content-type", b"content-encoding", b"inference-header-content-length"),
        *(b"retry-after", b"www-authenticate"),
    )
)


class Sent(NamedTuple):
    """One request on its way to a server. Requests of a batch share wire, target and keyed headers.

    Attributes:
        target: path and query.
        headers: passed on with a merged call.
        original: the request as its client sent it, with all headers; None for a part of a larger request.
        expires_at: when its client gives up, by the clock of :class:`MergedCalls`.
        span: the request's span if it is traced.
    """

    request: Mergeable
    wire: Wire[Any, Any]
    target: bytes
    headers: tuple[Header, ...]
    original: Content | None
    expires_at: float = math.inf
    span: Span | None = None


class Part(NamedTuple):
    """One request's share of the reply to a merged call, as its wire returns it."""

    reply: Any


CallResult = Part | ServerResponse
"""The result of a merged call for one request; the client gets a response unchanged."""


class MergedCalls(TaskRunner[Sent, CallResult]):
    """Runs each batch as one call, and as more calls if that one may have failed because of one request.

    The calls of a batch run one after another, on the batch's slot.

    Args:
        servers: the model servers.
        trace: starts a span for a batch and returns its ``traceparent`` and ``tracestate``.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        servers: HttpServers,
        *,
        trace: Callable[[Job[Sent]], tuple[str, str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._execute)
        self._servers = servers
        self._trace = trace
        self._clock = clock
        self._complaint = ""

    def start(self, job: Job[Sent], ended: OnBatchEnd[CallResult]) -> None:
        """Take the slot now, and start the call in the next turn of the loop."""
        if self._trace is not None:
            trace = self._trace(job)
            job = job._replace(payloads=[_in_trace(sent, trace) for sent in job.payloads])
        self._servers.take(job.start.worker)
        super().start(job, ended)

    def abandon(self, batch: int, worker: int) -> None:
        """Cancel the call and close its connection; another slot is added when there is room."""
        super().abandon(batch, worker)
        self._servers.drop(worker)

    async def _execute(self, job: Job[Sent]) -> BatchResult[CallResult]:
        slot = job.start.worker
        try:
            return await self._answers(slot, job.payloads)
        except WorkerLost:
            self._servers.drop(slot)
            raise
        finally:
            self._servers.give_back(slot)

    async def _answers(self, slot: int, batch: Sequence[Sent]) -> BatchResult[CallResult]:
        """Run one call, or several after a failure; the batch then does not count for the estimate."""

        async def ask(group: range) -> list[CallResult] | ServerResponse:
            return await self._ask(slot, batch[group.start : group.stop])

        answers = await ask(range(len(batch)))
        if isinstance(answers, list):
            worked = all(isinstance(answer, Part) for answer in answers)
            return BatchResult(answers, "worked" if worked else "failed")
        if self._servers.idempotent:
            return BatchResult(await bisect(len(batch), answers, ask), "failed")
        return BatchResult([answers] * len(batch), "failed")

    async def _ask(self, slot: int, group: Sequence[Sent]) -> list[CallResult] | ServerResponse:
        """Return each request's result; one answer for all if a single request may have caused it."""
        wire, requests = group[0].wire, [sent.request for sent in group]
        headers = (*group[0].headers, *self._time_left(group))
        response = await self._servers.call(slot, group[0].target, wire.merge(requests), headers)
        if response.status != 200:
            kept = tuple(header for header in response.headers if header[0] in _RELAYED)
            relayed = response._replace(headers=kept)
            return relayed if response.status in _MAYBE_ONE else [relayed] * len(group)
        try:
            replies = wire.split(Content(response.body, response.headers), requests)
        except WrongReply as error:
            self._complain(group[0].target, str(error))
            return await self._ask_each(slot, group, str(error))
        return [Part(reply) for reply, _ in zip(replies, group, strict=True)]

    async def _ask_each(self, slot: int, group: Sequence[Sent], fault: str) -> list[CallResult]:
        """Send each request alone and unchanged, because the reply to the merged call could not be split."""
        nonsense = ServerResponse(502, ((b"content-type", b"application/json"),), error_body(fault))
        if not self._servers.idempotent:
            return [nonsense] * len(group)
        answers: list[CallResult] = []
        for sent in group:
            if sent.original is not None:
                answers.append(await self._relay(slot, sent, sent.original))
            elif len(group) > 1:
                answer = await self._ask(slot, [sent])
                answers += [answer] if isinstance(answer, ServerResponse) else answer
            else:
                answers.append(nonsense)
        return answers

    async def _relay(self, slot: int, sent: Sent, original: Content) -> ServerResponse:
        headers = tuple(header for header in original.headers if header[0] != _TIMEOUT)
        content = Content(original.body, headers)
        return await self._servers.call(slot, sent.target, content, self._time_left([sent]))

    def _time_left(self, group: Sequence[Sent]) -> tuple[Header, ...]:
        """Return the header with the longest time that a client still waits, if it is known."""
        latest = max(sent.expires_at for sent in group)
        if latest == math.inf:
            return ()
        return ((_TIMEOUT, b"%d" % max(1, int((latest - self._clock()) * 1000))),)

    def _complain(self, target: bytes, fault: str) -> None:
        """Warn that merging costs more than it saves, once for each reason."""
        complaint = f"{target.decode('latin-1')!r}: cannot split the response to a merged call: {fault}"
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("%s; sending its requests individually, without batching", complaint)


async def bisect(
    count: int, refusal: ServerResponse, ask: Callable[[range], Awaitable[list[CallResult] | ServerResponse]]
) -> list[CallResult]:
    """Find which of ``count`` requests make a call fail, and get the others their answers.

    The call for all of them was refused. Level by level, each refused group is halved and its halves are
    asked again: with one bad request that is two calls per level, at most 2 * ceil(log2(count)). A request
    gets the answer to the last group that contained it. If more than four groups of a level are refused, the
    cause is no single request, and the search ends.
    """
    answers: list[CallResult] = [refusal] * count
    refused = [range(count)]
    while 0 < len(refused) <= _MOST_FAILING:
        halves = [
            half
            for group in refused
            if (middle := len(group) // 2)
            for half in (group[:middle], group[middle:])
        ]
        refused = []
        for half in halves:
            answer = await ask(half)
            if isinstance(answer, ServerResponse):
                refused.append(half)
                answer = [answer] * len(half)
            answers[half.start : half.stop] = answer
    return answers


def _in_trace(sent: Sent, trace: tuple[str, str]) -> Sent:
    """Return a request with the trace headers of its call."""
    original = sent.original
    if original is not None:
        original = Content(original.body, with_trace(original.headers, trace))
    return sent._replace(headers=with_trace(sent.headers, trace), original=original)


def with_trace(headers: Sequence[Header], trace: tuple[str, str]) -> tuple[Header, ...]:
    """Set ``traceparent`` and ``tracestate``, the second of which may be empty."""
    kept = [header for header in headers if header[0] not in _TRACE]
    return (*kept, *[(name, value.encode()) for name, value in zip(_TRACE, trace, strict=True) if value])
