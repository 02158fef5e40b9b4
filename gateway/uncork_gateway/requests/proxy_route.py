"""HTTP requests through the batching proxy: parse, submit in parts, and respond."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from uncork_dispatcher import RequestExpired, RequestResult
from uncork_gateway.auth import without_cors
from uncork_gateway.backends.model_servers.http_server import named_by_connection
from uncork_gateway.backends.model_servers.known_models import can_be_known
from uncork_gateway.backends.model_servers.merged_calls import CallResult, Sent, with_trace
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.connection.decompression import ENCODING_HEADERS, ENCODINGS
from uncork_gateway.dialects.base import JSON
from uncork_gateway.errors import GatewayError, RefusalReason
from uncork_gateway.headers import JSON_LENGTH, Header, header_lines, origin_form, path_of, with_request_id
from uncork_gateway.interfaces import Connection
from uncork_gateway.protocols.rows import RowsWire, error_body
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Content, Unmergeable, Wire
from uncork_gateway.requests.batch_headers import NAMES, BatchHeaders
from uncork_gateway.requests.head import Head, read_head
from uncork_gateway.requests.pass_through import check_status
from uncork_gateway.requests.proxy_target import Merging, RequestInParts, RequestParts
from uncork_gateway.requests.request import BufferedRequest
from uncork_gateway.telemetry.metrics import ApiTally

_CONTENT = (b"content-type", JSON_LENGTH)
_V1 = re.compile(rb"/v1/models/([^/:]+):predict$")
_TF_SERVING = re.compile(rb"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict$", re.IGNORECASE)
_V2 = re.compile(rb"/v2/models/([^/]+)(?:/versions/[^/]+)?/infer$")
# Tried in this order.
_WIRES: dict[str, list[tuple[re.Pattern[bytes], Wire[Any, Any]]]] = {
    "v1": [(_V1, RowsWire(add_batch_id=True))],
    "v2": [(_V2, V2Wire())],
    "tfserving": [(_TF_SERVING, RowsWire(add_batch_id=False))],
}
_WIRES["auto"] = [*_WIRES["v2"], *_WIRES["v1"], *_WIRES["tfserving"]]

Relay = Callable[[bytes, Sequence[Header], bytes], Coroutine[Any, Any, ServerResponse]]


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
class ProxyRoute:
    """The route of one target (path and query) on the HTTP servers behind the proxy.

    Attributes:
        model: the model's name, as the client writes it.
        relay: relays a request unchanged, given target, headers and body.
    """

    target: bytes
    model: str
    wire: Wire[Any, Any]
    merging: Merging
    relay: Relay
    max_body_bytes: int

    @property
    def batch_headers(self) -> BatchHeaders:
        return self.merging.batch_headers

    @property
    def tally(self) -> ApiTally:
        return self.merging.models.tally(self.model)

    def read_head(self, headers: Sequence[Header], target: bytes) -> SortedHead:
        whole = tuple((name.lower(), value) for name, value in headers)
        common = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self.merging.fair_by)
        is_opaque = False
        if common.encoding in ENCODINGS:
            whole = tuple(header for header in whole if header[0] not in ENCODING_HEADERS)
        elif common.encoding:
            common, is_opaque = common._replace(encoding=b""), True
        dropped = named_by_connection(whole)
        keyed, sent = self.merging.header_rules.sort([header for header in whole if header[0] not in dropped])
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


def find_route(
    target: bytes, *, protocol: str, merging: Merging, relay: Relay, max_body_bytes: int
) -> ProxyRoute | None:
    """Return the route of a POST request, if ``protocol`` merges it; None if it must pass through."""
    path = path_of(target)
    for pattern, wire in _WIRES[protocol]:
        found = pattern.search(path)
        if found is None:
            continue
        model = found[1].decode("utf-8", "backslashreplace")
        sent_on = origin_form(target)
        if not (can_be_known(model) and sent_on):
            return None
        return ProxyRoute(
            target=sent_on,
            model=model,
            wire=wire,
            merging=merging,
            relay=relay,
            max_body_bytes=max_body_bytes,
        )
    return None


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
        whole = Sent(
            request=request,
            wire=route.wire,
            target=route.target,
            headers=head.sent,
            original=Content(body, head.whole),
            expires_at=time.monotonic() + head.common.timeout_s,
            request_id=self.request_id,
            span=self._span,
        )
        source, flow = self._connection.number, head.common.flow
        self._send_parts(
            RequestParts(self, route.merging, api, whole, keyed=head.keyed, source=source, flow=flow)
        )

    # Results

    def _finish(self, answer: RequestResult[CallResult]) -> None:
        batch, result = answer.batch, answer.result
        if isinstance(result, ServerResponse):
            status, body = result.status, result.body
            headers = tuple(each for each in self._without_cors(result.headers) if each[0] not in NAMES)
            check_status(status)
        else:
            assert self._parts is not None
            status = 200
            body, headers = self._parts.joined(batch.number)
        _, lines = self._route.batch_headers.lines(batch, answer.queued_s)
        lines += header_lines(headers)
        self._reply(status, lines, body)
        self._withdraw()

    def _reply(self, status: int, head: bytes, body: bytes, *, refusal: RefusalReason | None = None) -> None:
        if 200 <= status < 300:
            self._route.merging.models.add(self._route.model)
        super()._reply(status, head, body, refusal=refusal)

    def _without_cors(self, headers: tuple[Header, ...]) -> tuple[Header, ...]:
        """Return a server's headers, without its own allowed origins if the proxy adds its."""
        return tuple(without_cors(headers)) if self.cors else headers

    async def _relay(self, body: bytes) -> None:
        try:
            headers = with_request_id(self._sorted.whole, self.request_id)
            if self._span is not None:
                headers = with_trace(headers, self._span.headers())
            timeout_s = self._head.timeout_s
            async with asyncio.timeout(None if timeout_s == math.inf else timeout_s):
                relayed = await self._route.relay(self._route.target, headers, body)
            if not self._is_answered:
                self._reply(relayed.status, header_lines(self._without_cors(relayed.headers)), relayed.body)
        except TimeoutError:
            self.failed(RequestExpired("the client's time passed while the request ran"))
        except Exception as error:
            self.failed(error)
