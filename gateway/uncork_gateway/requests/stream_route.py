"""Requests to APIs that stream: responses are sent while the handler yields them."""

from __future__ import annotations

import logging
import time

from uncork_dispatcher import RequestResult
from uncork_gateway.connection.timeouts import reset
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import CLIENT_GONE, ClientTimedOut, RefusalReason, Refused
from uncork_gateway.interfaces import Connection
from uncork_gateway.requests.api_route import ApiRequest, ApiRoute
from uncork_gateway.requests.head import Head
from uncork_workers.wire.messages import AnswerHead

log = logging.getLogger("uncork.gateway")


class StreamRequest(ApiRequest):
    """One request to an API that streams; receives the pieces from the worker.

    An error before the first piece becomes the response. After the first piece, an error closes the
    connection, so that the client sees that the response is incomplete.
    """

    _status = 0
    """The status of the reply, once it has begun."""
    _batch = 0
    _queued_s = 0.0

    def __init__(self, route: ApiRoute, connection: Connection, head: Head, *, keep_alive: bool) -> None:
        super().__init__(route, connection, head, keep_alive=keep_alive)
        self._is_chunked = connection.has_chunks
        if not self._is_chunked:
            self.keep_alive = False

    def started(self, batch: int) -> None:
        self._batch = batch
        self._queued_s = time.perf_counter() - self._submitted_at

    def piece(self, head: AnswerHead | None, data: bytes) -> None:
        """Send a piece of the response; disconnect a client that does not read."""
        transport = self._connection.transport
        if self._is_answered or transport.is_closing():
            return  # The worker has not received the cancellation yet.
        unread_bytes = transport.get_write_buffer_size()
        if unread_bytes > self._route.max_body_bytes:
            log.warning(
                "closing the connection of a client of batch %s: it has not read %d bytes of its stream",
                *(self._id, unread_bytes),
            )
            self._withdraw()
            self._cut(CLIENT_GONE)
            return
        if head is not None and not self._begin_reply(head):
            return
        if not self._is_chunked:
            transport.write(data)
        elif data:  # an empty chunk would be the last
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _finish(self, answer: RequestResult[HandlerResult]) -> None:
        status, reason = answer.result.status, answer.result.body
        if status != 200:
            raise Refused(reason.decode(), status)
        if not self._status:
            # The handler yielded nothing.
            self._reply(status, self._opening_lines(), b"")
        elif not self._connection.transport.is_closing():
            if self._is_chunked:
                self._connection.transport.write(b"0\r\n\r\n")
            self._is_answered = True
            self._connection.end_reply(self)
            self._count(self._status)

    def failed(self, error: Exception) -> None:
        """Send an error response, or break off a response that has begun."""
        if self._is_answered or not self._status:
            super().failed(error)
            return
        failure = self._failure(error)
        # A client that limits its time expects the end.
        level = logging.INFO if isinstance(failure, ClientTimedOut) else logging.ERROR
        log.log(level, "the stream of batch %s was cut short: %s", self._id, failure)
        self._cut(failure.status, refusal=failure.reason)

    def _dispatch(self, body: bytes) -> None:
        self._submitted_at = time.perf_counter()
        self._submit(self._route.dialect.read(body, self._head.headers), len(body), sink=self)

    @property
    def _id(self) -> str:
        return self._route.batch_headers.id_of(self._batch)

    def _begin_reply(self, head: AnswerHead) -> bool:
        """Send the head; if that fails, send an error response and return False."""
        said = HandlerResult(head.status, b"", content_type=head.content_type, headers=head.headers)
        try:
            lines, _ = self._route.dialect.write(said, self._payload, batch_id=self._id)
        except Exception as error:
            self._withdraw()
            self.failed(error)
            return False
        self._status = head.status
        encoding = b"transfer-encoding: chunked\r\n" if self._is_chunked else b""
        self._connection.begin_reply(self, head.status, self._opening_lines() + lines + encoding)
        return True

    def _opening_lines(self) -> bytes:
        return self._route.batch_headers.opening_lines(self._batch, self._payload.rows, self._queued_s)

    def _cut(self, status: int, *, refusal: RefusalReason | None = None) -> None:
        """Close the connection in the middle of the response."""
        self._is_answered = True
        transport = self._connection.transport
        if self._is_chunked and status != CLIENT_GONE:
            transport.close()  # After the pieces so far have been sent.
        else:
            reset(transport)  # Without chunks, a normal close would complete the reply.
        self._count(status, refusal=refusal)
