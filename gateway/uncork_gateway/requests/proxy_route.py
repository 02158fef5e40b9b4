"""Requests through the batching proxy: parse, split, submit the parts to the dispatcher, join the replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from uncork_dispatcher import AsyncDispatcher, RequestResult
from uncork_gateway.backends.http_server import ServerResponse
from uncork_gateway.backends.known_models import KnownModels
from uncork_gateway.backends.merged_calls import CallResult, Part, Sent, with_trace
from uncork_gateway.connection.decompression import ENCODING_HEADERS, ENCODINGS
from uncork_gateway.dialects.base import JSON
from uncork_gateway.errors import BadGateway, GatewayError
from uncork_gateway.headers import Header, header_lines
from uncork_gateway.interfaces import Connection
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import Content, Unmergeable, Wire, WrongReply
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.head import Head, read_head
from uncork_gateway.requests.pass_through import check_status
from uncork_gateway.requests.request import BufferedRequest
from uncork_gateway.telemetry.metrics import ApiTally

_CONTENT = (b"content-type", b"inference-header-content-length")


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderRules:
    """How the headers of merged requests are treated; names in lower case.

    Attributes:
        keyed: headers that may identify the caller. Requests that differ in one do not share a call, and the
            call has them.
        passed: the call has them as its first request does.

    All others are dropped: they concern one request, not a call for several.
    """

    keyed: frozenset[bytes] = frozenset((b"authorization", b"cookie", b"x-api-key"))
    passed: frozenset[bytes] = frozenset((b"traceparent", b"tracestate"))


class SortedHead(NamedTuple):
    """The headers of a request, by use.

    Attributes:
        common: the headers that every route reads.
        content: those that describe the body.
        keyed: part of the batch key.
        sent: sent with a merged call.
        whole: sent with a call for this request alone; without those of an encoding that is removed.
        is_opaque: whether the body has an unknown encoding; it is relayed unchanged.
    """

    common: Head
    content: tuple[Header, ...]
    keyed: tuple[Header, ...]
    sent: tuple[Header, ...]
    whole: tuple[Header, ...]
    is_opaque: bool


@dataclass(eq=False)
class ProxyRoute:
    """One target (path and query) of the servers behind the proxy.

    Attributes:
        relay: relays a request unchanged, given target, headers and body.
    """

    executor = "model server"

    target: bytes
    _: KW_ONLY
    model: str
    wire: Wire[Any, Any]
    most_rows: int
    header_rules: HeaderRules
    models: KnownModels
    dispatcher: AsyncDispatcher[Sent, CallResult]
    relay: Callable[[bytes, Sequence[Header], bytes], Coroutine[Any, Any, ServerResponse]]
    max_body_bytes: int
    batch_headers: BatchHeaders
    fair_by: bytes | None = None

    def read_head(self, headers: Sequence[Header], target: bytes) -> SortedHead:
        whole = tuple((name.lower(), value) for name, value in headers)
        common = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self.fair_by)
        is_opaque = False
        if common.encoding in ENCODINGS:
            whole = tuple(header for header in whole if header[0] not in ENCODING_HEADERS)
        elif common.encoding:
            common, is_opaque = common._replace(encoding=b""), True
        keyed = tuple(header for header in whole if header[0] in self.header_rules.keyed)
        passed = tuple(header for header in whole if header[0] in self.header_rules.passed)
        return SortedHead(
            common=common,
            content=tuple(header for header in whole if header[0] in _CONTENT),
            keyed=keyed,
            sent=keyed + passed,
            whole=whole,
            is_opaque=is_opaque,
        )

    @property
    def tally(self) -> ApiTally:
        return self.models.tally(self.model)

    def open(self, connection: Connection, head: SortedHead, *, keep_alive: bool) -> ProxyRequest:
        return ProxyRequest(self, connection, head, keep_alive=keep_alive)

    def error(self, error: GatewayError) -> tuple[bytes, bytes]:
        return JSON, error_body(str(error))


class ProxyRequest(BufferedRequest[ProxyRoute]):
    """One request to the servers behind the proxy, split into parts of at most ``most_rows`` rows."""

    def __init__(
        self, route: ProxyRoute, connection: Connection, head: SortedHead, *, keep_alive: bool
    ) -> None:
        super().__init__(route, connection, head.common, keep_alive=keep_alive)
        self._sorted = head
        self._numbers: list[int] = []
        self._replies: dict[int, Any] = {}
        self._relaying: asyncio.Task[None] | None = None

    def _dispatch(self, body: bytes) -> None:
        route, head = self._route, self._sorted
        api = route.models.use(route.model)
        content = Content(body, head.content)
        try:
            if head.is_opaque:
                raise Unmergeable("its body is encoded")
            self._request = route.wire.parse(content)
        except Unmergeable:
            self._relaying = asyncio.create_task(self._relay(body))
            return
        self._parts = route.wire.cut(self._request, route.most_rows)
        self._rows = sum(part.rows for part in self._parts)
        if self._span is not None:
            self._span.set_attribute("uncork.rows", self._rows)
        for at, part in enumerate(self._parts):
            sent = Sent(
                request=part,
                wire=route.wire,
                target=route.target,
                headers=head.sent,
                original=Content(body, head.whole) if len(self._parts) == 1 else None,
                expires_at=time.monotonic() + head.common.timeout_s,
                span=self._span,
            )
            self._numbers.append(self._submit(api, at, sent))

    def _submit(self, api: str, at: int, sent: Sent) -> int:
        route = self._route
        return route.dispatcher.submit(
            _PartWaiter(self, at),
            api,
            sent,
            rows=sent.request.rows,
            size_bytes=sent.request.size_bytes,
            key=(route.target, self._sorted.keyed, sent.request.key),
            client_timeout_s=self._sorted.common.timeout_s,
            source=self._connection.number,
            flow=self._sorted.common.flow,
        )

    def _withdraw(self) -> None:
        for number in self._numbers:
            self._route.dispatcher.cancel(number)
        if self._relaying is not None:
            self._relaying.cancel()

    # Results

    def part_answered(self, at: int, answer: RequestResult[CallResult]) -> None:
        """Reply when all parts are answered, or one was relayed as the whole request."""
        if isinstance(answer.result, Part):
            self._replies[at] = answer.result.reply
            if len(self._replies) < len(self._parts):
                return
        self.answered(answer)

    def failed(self, error: Exception) -> None:
        """Reply with an error, and cancel the other parts."""
        super().failed(error)
        self._withdraw()

    def _finish(self, answer: RequestResult[CallResult]) -> None:
        batch_headers, batch = self._route.batch_headers, answer.batch
        if isinstance(answer.result, ServerResponse):
            status, headers, body = answer.result
            check_status(status)
        else:
            status = 200
            body, headers = self._joined(batch_id=batch_headers.id_of(batch.start.batch))
        self._reply(status, batch_headers.lines(batch, answer.queued_s) + header_lines(headers), body)
        self._withdraw()

    def _joined(self, *, batch_id: str) -> Content:
        """Return the reply to the request, joined from those to its parts."""
        wire = self._route.wire
        try:
            joined = wire.join([self._replies[at] for at in range(len(self._parts))])
            return wire.render(joined, self._request, batch_id=batch_id)
        except WrongReply as error:
            raise BadGateway(str(error)) from error

    def _reply(self, status: int, head: bytes, body: bytes, *, is_refusal: bool = False) -> None:
        if 200 <= status < 300:
            self._route.models.add(self._route.model)
        super()._reply(status, head, body, is_refusal=is_refusal)

    async def _relay(self, body: bytes) -> None:
        try:
            headers = self._sorted.whole
            if self._span is not None:
                headers = with_trace(headers, self._span.headers())
            relayed = await self._route.relay(self._route.target, headers, body)
            if not self._is_answered:
                self._reply(relayed.status, header_lines(relayed.headers), relayed.body)
        except Exception as error:
            self.failed(error)


class _PartWaiter(NamedTuple):
    """Passes the result of one part to its request."""

    request: ProxyRequest
    at: int

    def answered(self, answer: RequestResult[CallResult]) -> None:
        self.request.part_answered(self.at, answer)

    def failed(self, error: Exception) -> None:
        self.request.failed(error)
