"""Batches as calls to model servers: merge, call, split, and find out whose fault it was when that fails."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uncork_dispatcher import BatchResult, Job, OnBatchEnd, TaskRunner, WorkerLost
from uncork_gateway.backends.http_server import Response
from uncork_gateway.backends.http_servers import HttpServers
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import Content, Header, Mergeable, Wire, WrongReply

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Span

log = logging.getLogger("uncork.gateway")

# What a server may say of a call because of one request in it.
_MAYBE_ONE = (400, 413, 422, 500)
_MOST_FAILING = 4
_TIMEOUT = b"x-request-timeout-ms"
_TRACE = (b"traceparent", b"tracestate")
# Said anew with every answer.
_DATE = b"date"
# The other headers of an answer to several requests are about none of them.
_RELAYED = frozenset(
    (
        *(b"content-type", b"content-encoding", b"inference-header-content-length"),
        *(b"retry-after", b"www-authenticate"),
    )
)


class Sent(NamedTuple):
    """One request on its way to a server.

    ``target`` is path and query; ``headers`` are passed on with a call for several. ``original`` is the
    request as its client sent it, with all headers; None if it is a part of one that was cut.
    ``expires_at`` is when its client gives up, by the clock of :class:`MergedCalls`. The requests of a
    batch have wire, target and what matters of the headers in common. ``span`` is the request's, if it
    is traced.
    """

    request: Mergeable
    wire: Wire[Any, Any]
    target: bytes
    headers: tuple[Header, ...]
    original: Content | None
    expires_at: float = math.inf
    span: Span | None = None


class Part(NamedTuple):
    """What the reply to a merged call has for one request, as its wire says it."""

    reply: Any


class Relayed(NamedTuple):
    """An answer that is given to the client as it is."""

    status: int
    headers: tuple[Header, ...]
    body: bytes


Outcome = Part | Relayed
"""What became of a request."""


class MergedCalls(TaskRunner[Sent, Outcome]):
    """Runs each batch as one call; as more calls if that one fails because of one request in it.

    Calls of one batch run one after the other, on the batch's permit. What is not ``idempotent`` is never
    sent twice. ``trace`` begins a span for a batch, says its ``traceparent`` and ``tracestate``. ``clock``
    gives monotonic seconds.
    """

    def __init__(
        self,
        servers: HttpServers,
        *,
        idempotent: bool = True,
        trace: Callable[[Job[Sent]], tuple[str, str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._execute)
        self._servers = servers
        self._idempotent = idempotent
        self._trace = trace
        self._clock = clock
        self._complaint = ""

    def start(self, job: Job[Sent], ended: OnBatchEnd[Outcome]) -> None:
        """Begin in the next turn of the loop; the permit is taken now."""
        if self._trace is not None:
            trace = self._trace(job)
            job = job._replace(payloads=[_in_trace(sent, trace) for sent in job.payloads])
        self._servers.take(job.start.worker)
        super().start(job, ended)

    def abandon(self, batch: int, worker: int) -> None:
        """Cancel the call and close its connection; there is another permit when there is a place."""
        super().abandon(batch, worker)
        self._servers.drop(worker)

    async def _execute(self, job: Job[Sent]) -> BatchResult[Outcome]:
        permit = job.start.worker
        try:
            return await self._answers(permit, job.payloads)
        except WorkerLost:
            self._servers.drop(permit)
            raise
        finally:
            self._servers.give_back(permit)

    async def _answers(self, permit: int, batch: Sequence[Sent]) -> BatchResult[Outcome]:
        """One call; more than one teach nothing about how long one takes."""

        async def ask(group: range) -> list[Outcome] | Relayed:
            return await self._ask(permit, batch[group.start : group.stop])

        answers = await ask(range(len(batch)))
        if isinstance(answers, list):
            worked = all(isinstance(answer, Part) for answer in answers)
            return BatchResult(answers, "worked" if worked else "failed")
        if self._idempotent:
            return BatchResult(await bisect(len(batch), answers, ask), "failed")
        return BatchResult([answers] * len(batch), "failed")

    async def _ask(self, permit: int, group: Sequence[Sent]) -> list[Outcome] | Relayed:
        """What a merged call brings each request; one answer if it may be the fault of one of them."""
        wire, requests = group[0].wire, [sent.request for sent in group]
        headers = (*group[0].headers, *self._time_left(group))
        response = await self._call(permit, group[0].target, wire.merge(requests), headers)
        if response.status != 200:
            relayed = _relayed(response)
            return relayed if response.status in _MAYBE_ONE else [relayed] * len(group)
        try:
            replies = wire.split(Content(response.body, response.headers), requests)
        except WrongReply as error:
            self._complain(group[0].target, str(error))
            return await self._ask_each(permit, group, str(error))
        return [Part(reply) for reply, _ in zip(replies, group, strict=True)]

    async def _ask_each(self, permit: int, group: Sequence[Sent], fault: str) -> list[Outcome]:
        """The merged call worked, but its reply cannot be dealt out: each request goes alone, as it came."""
        nonsense = Relayed(502, ((b"content-type", b"application/json"),), error_body(fault))
        if not self._idempotent:
            return [nonsense] * len(group)
        answers: list[Outcome] = []
        for sent in group:
            if sent.original is not None:
                answers.append(await self._relay(permit, sent, sent.original))
            elif len(group) > 1:
                answer = await self._ask(permit, [sent])
                answers += [answer] if isinstance(answer, Relayed) else answer
            else:
                answers.append(nonsense)
        return answers

    async def _relay(self, permit: int, sent: Sent, original: Content) -> Relayed:
        headers = tuple(header for header in original.headers if header[0] != _TIMEOUT)
        content = Content(original.body, headers)
        response = await self._call(permit, sent.target, content, self._time_left([sent]))
        kept = tuple(header for header in response.headers if header[0] != _DATE)
        return Relayed(response.status, kept, response.body)

    async def _call(
        self, permit: int, target: bytes, content: Content, headers: tuple[Header, ...]
    ) -> Response:
        return await self._servers.call(permit, target, content, headers, idempotent=self._idempotent)

    def _time_left(self, group: Sequence[Sent]) -> tuple[Header, ...]:
        """How long anybody waits for the answer, if that is known."""
        latest = max(sent.expires_at for sent in group)
        if latest == math.inf:
            return ()
        return ((_TIMEOUT, b"%d" % max(1, int((latest - self._clock()) * 1000))),)

    def _complain(self, target: bytes, fault: str) -> None:
        """Say that merging costs more than it saves, once for each reason."""
        complaint = f"{target.decode('latin-1')!r}: the reply to a merged call cannot be dealt out: {fault}"
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("%s; its requests are sent one by one", complaint)


async def bisect(
    count: int, refusal: Relayed, ask: Callable[[range], Awaitable[list[Outcome] | Relayed]]
) -> list[Outcome]:
    """Find out which of ``count`` requests make a call fail, and get the others their answers.

    All of them together were refused. Level by level each group that was refused is halved, and its halves
    are asked: for one culprit two calls a level, at most 2 * ceil(log2(count)). A request gets what the last
    group that it was in was told. Where more than four groups of a level are refused it is no single bad
    request, and the search ends.
    """
    answers: list[Outcome] = [refusal] * count
    refused = [range(count)]
    while 0 < len(refused) <= _MOST_FAILING:
        halves = [half for group in refused if len(group) > 1 for half in _halves(group)]
        refused = []
        for half in halves:
            answer = await ask(half)
            if isinstance(answer, Relayed):
                refused.append(half)
                answer = [answer] * len(half)
            answers[half.start : half.stop] = answer
    return answers


def _in_trace(sent: Sent, trace: tuple[str, str]) -> Sent:
    """A request with the headers that say in which trace its call is."""
    original = sent.original
    if original is not None:
        original = Content(original.body, with_trace(original.headers, trace))
    return sent._replace(headers=with_trace(sent.headers, trace), original=original)


def with_trace(headers: Sequence[Header], trace: tuple[str, str]) -> tuple[Header, ...]:
    """Headers with these for ``traceparent`` and ``tracestate``, the second of which may be empty."""
    kept = [header for header in headers if header[0] not in _TRACE]
    return (*kept, *[(name, value.encode()) for name, value in zip(_TRACE, trace, strict=True) if value])


def _halves(group: range) -> tuple[range, range]:
    middle = len(group) // 2
    return group[:middle], group[middle:]


def _relayed(response: Response) -> Relayed:
    headers = tuple(header for header in response.headers if header[0] in _RELAYED)
    return Relayed(response.status, headers, response.body)
