"""HTTP requests through the batching proxy: parse, submit in parts, and respond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from uncork_dispatcher import RequestResult
from uncork_gateway.backends.model_servers.merged_calls import CallResult, with_trace
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.connection.decompression import ENCODING_HEADERS, ENCODINGS
from uncork_gateway.cors import without_cors
from uncork_gateway.dialects.base import JSON
from uncork_gateway.errors import GatewayError
from uncork_gateway.headers import JSON_LENGTH, Header, header_lines, with_request_id
from uncork_gateway.interfaces import Connection
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import Content, Unmergeable
from uncork_gateway.requests.head import Head, read_head
from uncork_gateway.requests.pass_through import check_status
from uncork_gateway.requests.proxy_target import ProxyTarget, RequestInParts, RequestParts
from uncork_gateway.requests.request import BufferedRequest

_CONTENT = (b"content-type", JSON_LENGTH)


class SortedHead(NamedTuple):
    """The headers of a request, sorted by their use.

    Attributes:
        common: the headers that every route reads.
        content: the headers that describe the body.
        keyed: the headers in the batch key.
        sent: the headers to send with a merged call.
        whole: the headers to send with a call for this request alone, without those of a removed encoding.
        is_opaque: True if the body has an unknown encoding, so that the request is relayed unchanged.
    """

    common: Head
    content: tuple[Header, ...]
    keyed: tuple[Header, ...]
    sent: tuple[Header, ...]
    whole: tuple[Header, ...]
    is_opaque: bool


@dataclass(eq=False, kw_only=True)
class ProxyRoute(ProxyTarget):
    """The route of one target (path and query) on the HTTP servers behind the proxy.

    Attributes:
        relay: relays a request unchanged, given target, headers and body.
    """

    relay: Callable[[bytes, Sequence[Header], bytes], Coroutine[Any, Any, ServerResponse]]
    max_body_bytes: int

    def read_head(self, headers: Sequence[Header], target: bytes) -> SortedHead:
        whole = tuple((name.lower(), value) for name, value in headers)
        common = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self.merging.fair_by)
        is_opaque = False
        if common.encoding in ENCODINGS:
            whole = tuple(header for header in whole if header[0] not in ENCODING_HEADERS)
        elif common.encoding:
            common, is_opaque = common._replace(encoding=b""), True
        keyed, sent = self.merging.header_rules.sort(whole)
        return SortedHead(
            common=common,
            content=tuple(header for header in whole if header[0] in _CONTENT),
            keyed=keyed,
            sent=sent,
            whole=whole,
            is_opaque=is_opaque,
        )

    def open(self, connection: Connection, head: SortedHead, *, keep_alive: bool) -> ProxyRequest:
        return ProxyRequest(self, connection, head, keep_alive=keep_alive)

    def error(self, error: GatewayError, request_id: bytes) -> tuple[bytes, bytes]:
        return JSON, error_body(str(error))


class ProxyRequest(RequestInParts, BufferedRequest[ProxyRoute]):
    """One request to the HTTP servers behind the proxy."""

    def __init__(
        self, route: ProxyRoute, connection: Connection, head: SortedHead, *, keep_alive: bool
    ) -> None:
        super().__init__(route, connection, head.common, keep_alive=keep_alive)
        self._sorted = head

    def _dispatch(self, body: bytes) -> None:
        route, head = self._route, self._sorted
        api = route.merging.models.use(route.model)
        try:
            if head.is_opaque:
                raise Unmergeable("its body is encoded")
            request = route.wire.parse(Content(body, head.content))
        except Unmergeable:
            self._relaying = asyncio.create_task(self._relay(body))
            return
        self._parts = RequestParts(
            self,
            route,
            request,
            Content(body, head.whole),
            timeout_s=head.common.timeout_s,
            source=self._connection.number,
            flow=head.common.flow,
        )
        self._rows = self._parts.rows
        if self._span is not None:
            self._span.set_attribute("uncork.rows", self._rows)
        self._parts.submit(api, keyed=head.keyed, sent=head.sent, request_id=self.request_id, span=self._span)

    # Results

    def _finish(self, answer: RequestResult[CallResult]) -> None:
        batch, result = answer.batch, answer.result
        if isinstance(result, ServerResponse):
            status, headers, body = result.status, self._without_cors(result.headers), result.body
            check_status(status)
        else:
            assert self._parts is not None
            status = 200
            body, headers = self._parts.joined(batch.number)
        _, lines = self._route.batch_headers.lines(batch, answer.queued_s)
        lines += header_lines(headers)
        self._reply(status, lines, body)
        self._withdraw()

    def _reply(self, status: int, head: bytes, body: bytes, *, is_refusal: bool = False) -> None:
        if 200 <= status < 300:
            self._route.merging.models.add(self._route.model)
        super()._reply(status, head, body, is_refusal=is_refusal)

    def _without_cors(self, headers: tuple[Header, ...]) -> tuple[Header, ...]:
        """Return a server's headers, without its own allowed origins if the proxy adds its."""
        return tuple(without_cors(headers)) if self.cors else headers

    async def _relay(self, body: bytes) -> None:
        try:
            headers = with_request_id(self._sorted.whole, self.request_id)
            if self._span is not None:
                headers = with_trace(headers, self._span.headers())
            relayed = await self._route.relay(self._route.target, headers, body)
            if not self._is_answered:
                self._reply(relayed.status, header_lines(self._without_cors(relayed.headers)), relayed.body)
        except Exception as error:
            self.failed(error)
