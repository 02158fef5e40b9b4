"""The way of a request through the batching proxy: read, cut, have its parts batched, join, reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from uncork_dispatcher import AsyncDispatcher, RequestResult
from uncork_gateway.backends.known_models import KnownModels
from uncork_gateway.backends.merged_calls import Outcome, Part, Relayed, Sent, with_trace
from uncork_gateway.connection.decompression import ENCODINGS, OF_ENCODED
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import Header, header_lines
from uncork_gateway.dialects.base import JSON
from uncork_gateway.errors import BadGateway
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import Content, Unmergeable, Wire, WrongReply
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.requests.pass_through import check_status
from uncork_gateway.requests.request import BodyExchange, Head, read_head
from uncork_gateway.telemetry.metrics import ApiTally

_CONTENT = (b"content-type", b"inference-header-content-length")


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderRules:
    """What becomes of the headers of requests that are merged; names in lower case.

    Attributes:
        keyed: headers that may say who the caller is. Requests that differ in one do not share a call; it
            passes them on.
        passed: passed on as the first request of a call has them.

    All others are dropped: they are about one request, not about a call for several.
    """

    keyed: frozenset[bytes] = frozenset((b"authorization", b"cookie", b"x-api-key"))
    passed: frozenset[bytes] = frozenset((b"traceparent", b"tracestate"))


class SortedHead(NamedTuple):
    """The headers of a request by what becomes of them; ``sent`` are those that go with a merged call.

    ``whole`` are all that go with it alone, inflated if it is encoded in a way that is known; a body that
    ``is_opaque`` goes to the server as it is.
    """

    common: Head
    content: tuple[Header, ...]
    keyed: tuple[Header, ...]
    sent: tuple[Header, ...]
    whole: tuple[Header, ...]
    is_opaque: bool


Relay = Callable[[bytes, Sequence[Header], bytes], Coroutine[Any, Any, Relayed]]
"""Sends a request on as it is, by target, headers and body."""


class MergedRoute:
    """Serves one target, path and query, of the servers behind the proxy."""

    executor = "model server"

    def __init__(
        self,
        target: bytes,
        *,
        model: str,
        wire: Wire[Any, Any],
        most_rows: int,
        header_rules: HeaderRules,
        models: KnownModels,
        dispatcher: AsyncDispatcher[Sent, Outcome],
        relay: Relay,
        max_body_bytes: int,
        batch_head: BatchHead,
        fair_by: bytes | None = None,
    ) -> None:
        self.target = target
        self.model = model
        self.wire = wire
        self.most_rows = most_rows
        self.models = models
        self.dispatcher = dispatcher
        self.relay = relay
        self.max_body_bytes = max_body_bytes
        self.batch_head = batch_head
        self._fair_by = fair_by
        self._header_rules = header_rules

    def read_head(self, headers: Sequence[Header], target: bytes) -> SortedHead:
        """Sort the headers."""
        whole = tuple((name.lower(), value) for name, value in headers)
        rules = self._header_rules
        common = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self._fair_by)
        is_opaque = False
        if common.encoding in ENCODINGS:
            whole = tuple(header for header in whole if header[0] not in OF_ENCODED)
        elif common.encoding:
            common, is_opaque = common._replace(encoding=b""), True
        keyed = tuple(header for header in whole if header[0] in rules.keyed)
        passed = tuple(header for header in whole if header[0] in rules.passed)
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
        """What counts the answers for its model."""
        return self.models.tally(self.model)

    def open(self, connection: HttpProtocol, head: SortedHead, *, keep_alive: bool) -> MergedRequest:
        """A request whose head has come."""
        return MergedRequest(self, connection, head, keep_alive=keep_alive)

    def error(self, status: int, detail: str) -> tuple[bytes, bytes]:
        """As the servers behind would say it."""
        return JSON, error_body(detail)


class MergedRequest(BodyExchange):
    """One request to a server behind the proxy, in as many parts as its rows need."""

    def __init__(
        self, route: MergedRoute, connection: HttpProtocol, head: SortedHead, *, keep_alive: bool
    ) -> None:
        super().__init__(route, connection, head.common, keep_alive=keep_alive)
        self._route = route
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

    # What becomes of it

    def part_answered(self, at: int, answer: RequestResult[Outcome]) -> None:
        """Reply when all parts are there, or one of them has a reply of its own."""
        if isinstance(answer.result, Part):
            self._replies[at] = answer.result.reply
            if len(self._replies) < len(self._parts):
                return
        self.answered(answer)

    def failed(self, error: Exception) -> None:
        """One answer, however many parts there are."""
        super().failed(error)
        self._withdraw()

    def _finish(self, answer: RequestResult[Outcome]) -> None:
        batch_head, batch = self._route.batch_head, answer.batch
        if isinstance(answer.result, Relayed):
            status, headers, body = answer.result
            check_status(status)
        else:
            status = 200
            body, headers = self._joined(batch_id=batch_head.id_of(batch.start.batch))
        self._reply(status, batch_head.lines(batch, answer.queued_s) + header_lines(headers), body)
        self._withdraw()

    def _joined(self, *, batch_id: str) -> Content:
        """The reply to the request, made of those to its parts."""
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
        """It goes alone, and comes back as it is."""
        try:
            headers = self._sorted.whole
            if self._span is not None and self._connection.traces is not None:
                headers = with_trace(headers, self._connection.traces.headers(self._span))
            relayed = await self._route.relay(self._route.target, headers, body)
            if not self.response_complete:
                self._reply(relayed.status, header_lines(relayed.headers), relayed.body)
        except Exception as error:
            self.failed(error)


class _PartWaiter:
    """Waits for one part of a request."""

    def __init__(self, request: MergedRequest, at: int) -> None:
        self._request = request
        self._at = at

    def answered(self, answer: RequestResult[Outcome]) -> None:
        self._request.part_answered(self._at, answer)

    def failed(self, error: Exception) -> None:
        self._request.failed(error)
