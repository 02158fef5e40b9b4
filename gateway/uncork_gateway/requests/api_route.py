"""Requests to an API of the service: read the body, submit it to the dispatcher, reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from uncork_dispatcher import AsyncDispatcher, RequestResult
from uncork_gateway.codecs import Marshalled
from uncork_gateway.connection.decompression import ENCODING_HEADERS, ENCODINGS, unknown_encoding
from uncork_gateway.dialects.base import Dialect, HandlerResult, Reply
from uncork_gateway.errors import GatewayError, Refused, Unavailable
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import Connection
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.head import Head, read_head
from uncork_gateway.requests.request import BufferedRequest
from uncork_gateway.telemetry.metrics import ApiTally


@dataclass(eq=False)
class ApiRoute:
    """One path of an API, in one dialect."""

    executor = "worker"
    removed = False

    api: str
    _: KW_ONLY
    dialect: Dialect
    dispatcher: AsyncDispatcher[Marshalled, HandlerResult]
    tally: ApiTally
    max_body_bytes: int
    batch_headers: BatchHeaders
    fair_by: bytes | None = None

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """Read the headers; an error in them becomes the reply."""
        head = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self.fair_by)
        if head.encoding:
            if head.encoding not in ENCODINGS:
                return head._replace(rejection=unknown_encoding(head.encoding))
            headers = [header for header in headers if header[0].lower() not in ENCODING_HEADERS]
        try:
            return head._replace(headers=self.dialect.keep(headers, target))
        except GatewayError as error:
            return head._replace(rejection=error)

    def open(self, connection: Connection, head: Head, *, keep_alive: bool) -> ApiRequest:
        return ApiRequest(self, connection, head, keep_alive=keep_alive)

    def remove(self) -> None:
        """Reject requests that are still arriving: the dispatcher and the metrics have forgotten the API."""
        self.removed, self.tally = True, ApiTally()

    def error(self, error: GatewayError) -> Reply:
        return self.dialect.error(error)


class ApiRequest(BufferedRequest[ApiRoute]):
    """One request to an API; the dispatcher calls ``answered`` or ``failed``."""

    _number = 0
    _payload: Marshalled

    def _finish(self, answer: RequestResult[HandlerResult]) -> None:
        route, result = self._route, answer.result
        if result.status != 200 and not result.content_type:
            raise Refused(result.body.decode(), result.status)
        batch_id = route.batch_headers.id_of(answer.batch.start.batch)
        head, body = route.dialect.write(result, self._payload, batch_id=batch_id)
        lines = route.batch_headers.lines(answer.batch, answer.queued_s)
        self._reply(result.status, lines + head, body)

    def _withdraw(self) -> None:
        self._route.dispatcher.cancel(self._number)

    def _dispatch(self, body: bytes) -> None:
        self._submit(self._route.dialect.read(body, self._head.headers))

    def _submit(self, payload: Marshalled) -> None:
        if self._span is not None:
            self._span.set_attribute("uncork.rows", payload.rows)
            payload = payload._replace(span=self._span)
        route, self._payload, self._rows = self._route, payload, payload.rows
        if route.removed:
            raise Unavailable("this API was removed", reason="api_removed", retry_after_s=1)
        self._number = route.dispatcher.submit(
            self,
            route.api,
            payload,
            rows=payload.rows,
            cost=payload.cost,
            size_bytes=len(payload.body),
            key=payload.key,
            client_timeout_s=self._head.timeout_s,
            source=self._connection.number,
            flow=self._head.flow,
        )
