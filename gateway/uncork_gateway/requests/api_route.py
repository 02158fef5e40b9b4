"""The way of a request to an api of ours: read, have it batched, reply. One :class:`HotRoute` per path."""

from __future__ import annotations

from collections.abc import Sequence

from uncork_dispatcher import AsyncDispatcher, RequestResult
from uncork_gateway.codecs import Marshalled
from uncork_gateway.connection.decompression import ENCODINGS, OF_ENCODED, unknown_encoding
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import Header
from uncork_gateway.dialects.base import Dialect, Reply, RowsReply
from uncork_gateway.errors import GatewayError, Refused
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.requests.request import BodyExchange, Head, read_head
from uncork_gateway.telemetry.metrics import ApiTally


class HotRoute:
    """Serves one api in one dialect."""

    executor = "worker"

    def __init__(
        self,
        api: str,
        *,
        dialect: Dialect,
        dispatcher: AsyncDispatcher[Marshalled, RowsReply],
        tally: ApiTally,
        max_body_bytes: int,
        batch_head: BatchHead,
        fair_by: bytes | None = None,
    ) -> None:
        self.api = api
        self.dialect = dialect
        self.dispatcher = dispatcher
        self.tally = tally
        self.max_body_bytes = max_body_bytes
        self.batch_head = batch_head
        self._fair_by = fair_by

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """Read what the headers say; what is wrong with them is told when it is the request's turn."""
        head = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self._fair_by)
        if head.encoding:
            if head.encoding not in ENCODINGS:
                return head._replace(refused=unknown_encoding(head.encoding))
            headers = [header for header in headers if header[0].lower() not in OF_ENCODED]
        try:
            return head._replace(headers=self.dialect.keep(headers, target))
        except GatewayError as error:
            return head._replace(refused=error)

    def open(self, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> HotRequest:
        """A request whose head has come."""
        return HotRequest(self, connection, head, keep_alive=keep_alive)

    def error(self, status: int, detail: str) -> Reply:
        """Header lines and body of an answer other than 200."""
        return self.dialect.error(status, detail)


class HotRequest(BodyExchange):
    """One request to an api; the dispatcher says what became of it."""

    _number = 0
    _asked: Marshalled

    def __init__(self, route: HotRoute, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> None:
        super().__init__(route, connection, head, keep_alive=keep_alive)
        self._route = route

    def _finish(self, answer: RequestResult[RowsReply]) -> None:
        route, result = self._route, answer.result
        if result.status != 200 and not result.content_type:
            raise Refused(result.body.decode(), result.status)
        batch_id = route.batch_head.id_of(answer.batch.start.batch)
        head, body = route.dialect.write(result, self._asked, batch_id=batch_id)
        lines = route.batch_head.lines(answer.batch, answer.queued_s)
        self._reply(result.status, lines + head, body)

    def _withdraw(self) -> None:
        self._route.dispatcher.cancel(self._number)

    def _dispatch(self, body: bytes) -> None:
        self._submit(self._route.dialect.read(body, self._head.headers))

    def _submit(self, asked: Marshalled) -> None:
        if self._span is not None:
            self._span.set_attribute("uncork.rows", asked.rows)
            asked = asked._replace(span=self._span)
        route, self._asked, self._rows = self._route, asked, asked.rows
        self._number = route.dispatcher.submit(
            self,
            route.api,
            asked,
            rows=asked.rows,
            cost=asked.cost,
            size_bytes=len(asked.body),
            key=asked.key,
            client_timeout_s=self._head.timeout_s,
            source=self._connection.number,
            flow=self._head.flow,
        )
