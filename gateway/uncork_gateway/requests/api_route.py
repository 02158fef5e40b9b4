"""Requests to an API of the service: read the body, submit it to the dispatcher, respond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from msgspec.structs import replace

from uncork_dispatcher import RequestResult
from uncork_gateway.codecs import Marshalled, Sink
from uncork_gateway.connection.decompression import ENCODING_HEADERS, ENCODINGS, UnknownEncoding
from uncork_gateway.dialects.base import Dialect, HandlerResult, Reply
from uncork_gateway.errors import GatewayError
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import Connection
from uncork_gateway.requests.api_target import ApiTarget, Shared, accepted
from uncork_gateway.requests.coalescing import credentials_of
from uncork_gateway.requests.head import Head, read_head
from uncork_gateway.requests.parts import submission_of
from uncork_gateway.requests.request import BufferedRequest
from uncork_gateway.telemetry.metrics import ApiTally


class ApiRoute(ApiTarget):
    """One path of an API, in one dialect. ``kind`` is the class of its requests."""

    def __init__(
        self,
        api: str,
        *,
        dialect: Dialect,
        max_body_bytes: int,
        fair_by: bytes | None = None,
        kind: type[ApiRequest] | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(api, **shared)
        self.dialect = dialect
        self.max_body_bytes = max_body_bytes
        self.fair_by = fair_by
        self._kind = kind or ApiRequest

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """Read the headers. An invalid header yields a head with a ``rejection``."""
        head = read_head(headers, target, max_body_bytes=self.max_body_bytes, fair_by=self.fair_by)
        if head.encoding:
            if head.encoding not in ENCODINGS:
                return head._replace(rejection=head.rejection or UnknownEncoding(head.encoding))
            headers = [header for header in headers if header[0].lower() not in ENCODING_HEADERS]
        try:
            group = () if self.grouping is None else self.grouping.of_headers(headers)
            bulk = None if self.classes is None else self.classes.of_headers(headers)
            credentials = () if self.coalescing is None else credentials_of(headers)
            kept = self.dialect.keep(headers, target)
            values = self.values_of(headers)
            return head._replace(headers=kept, group=group, bulk=bulk, values=values, credentials=credentials)
        except GatewayError as error:
            return head._replace(rejection=head.rejection or error)

    def open(self, connection: Connection, head: Head, *, keep_alive: bool) -> ApiRequest:
        return self._kind(self, connection, head, keep_alive=keep_alive)

    def error(self, error: GatewayError, request_id: bytes) -> Reply:
        return self.dialect.error(error, request_id)


class ApiRequest(BufferedRequest[ApiRoute]):
    """One request to an API. The dispatcher calls ``answered`` or ``failed`` when it ends."""

    _payload: Marshalled
    _bulk = False

    @property
    def _tally(self) -> ApiTally:
        route = self._route
        return route.tally_of(self._bulk) if self._bulk else route.tally

    def _finish(self, answer: RequestResult[HandlerResult]) -> None:
        route, result = self._route, accepted(answer)
        batch_id, lines = route.batch_headers.lines(answer.batch, answer.queued_s)
        head, body = route.dialect.write(result, self._payload, batch_id=batch_id)
        self._reply(result.status, lines + head, body)

    def _withdraw(self) -> None:
        if self._submitted is not None:
            self._ran_in = self._route.cancel(self._submitted)

    def _dispatch(self, body: bytes) -> None:
        self._submit(self._route.dialect.read(body, self._head.headers), len(body))

    def _submit(self, payload: Marshalled, size_bytes: int, sink: Sink | None = None) -> None:
        """Submit the rows. The request itself keeps no ``sink``, which may be the request."""
        payload.came_in(size_bytes)
        head, route = self._head, self._route
        payload.contract = route.contract
        if route.headers or route.grouping is not None or self._span is not None:
            payload = route.complete(
                payload, group=head.group, values=head.values, request_id=self.request_id, span=self._span
            )
        self._payload, self._rows = payload, payload.rows
        if route.classes is not None:
            self._bulk = route.classes.is_bulk(head.bulk, payload.parameters)
        source = self._connection.number
        asked = submission_of(self, route.api, payload, head.timeout_s, source, head.flow, self._bulk)
        if sink is not None:
            asked.payload = replace(payload, sink=sink)
        self._submitted = route.submit(asked, head.credentials)
