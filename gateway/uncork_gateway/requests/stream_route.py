"""Requests whose answers are sent piece by piece, while the handler makes them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from uncork_dispatcher import RequestResult
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.errors import CLIENT_GONE, Refused
from uncork_gateway.requests.api_route import HotRequest, HotRoute
from uncork_gateway.requests.request import Head
from uncork_workers.wire.frames import AnswerHead

log = logging.getLogger("uncork.gateway")

_OK = 200


class StreamRoute(HotRoute):
    """Serves one api that streams."""

    def open(self, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> StreamRequest:
        """A request whose head has come."""
        return StreamRequest(self, connection, head, keep_alive=keep_alive)


class StreamRequest(HotRequest):
    """One request to an api that streams; it is the sink of its answer.

    What goes wrong before the first piece is an answer like any other. After that the connection is closed,
    so that the client sees that the answer is not whole.
    """

    response_started = False
    _status = 0
    """That of the answer, once it has begun."""
    _batch = 0
    _held_s = 0.0
    _cancel: Callable[[], None] | None = None

    def __init__(self, route: HotRoute, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> None:
        super().__init__(route, connection, head, keep_alive=keep_alive)
        # A head that came before, byte by byte, was not parsed again: only those that keep alive are known.
        self._is_chunked = keep_alive or connection.parser.get_http_version() != "1.0"

    def started(self, batch: int, cancel: Callable[[], None]) -> None:
        """Note who runs it."""
        self._batch, self._cancel = batch, cancel
        self._held_s = time.perf_counter() - self._submitted_at

    def piece(self, head: AnswerHead | None, data: bytes) -> None:
        """Send a piece, if there is a client that reads."""
        transport = self._connection.transport
        if self.response_complete or transport.is_closing():
            return  # the worker does not know yet
        waiting_bytes = transport.get_write_buffer_size()
        if waiting_bytes > self._route.max_body_bytes:
            log.warning("a client of batch %s lets %d bytes wait: it is cut off", self._id, waiting_bytes)
            self._withdraw()
            self._cut(CLIENT_GONE)
            return
        if head is not None and not self._begin_answer(head):
            return
        if not self._is_chunked:
            transport.write(data)
        elif data:  # an empty chunk would be the last
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _finish(self, answer: RequestResult[RowsReply]) -> None:
        status, reason = answer.result.status, answer.result.body
        if status != _OK:
            raise Refused(reason.decode(), status)
        if not self._status:
            # The handler had nothing to yield.
            self._reply(status, self._opening_lines(), b"")
        elif not self._connection.transport.is_closing():
            if self._is_chunked:
                self._connection.transport.write(b"0\r\n\r\n")
            self._connection.end(self)
            self._count(self._status)

    def failed(self, error: Exception) -> None:
        """Say what went wrong, as far as that can still be said."""
        if self.response_complete or not self._status:
            super().failed(error)
            return
        failure = self._failure(error)
        log.error("the answer of batch %s was cut short: %s", self._id, failure)
        self._cut(failure.status)

    def _dispatch(self, body: bytes) -> None:
        self._submitted_at = time.perf_counter()
        self._submit(self._route.dialect.read(body, self._head.headers)._replace(sink=self))

    def _withdraw(self) -> None:
        super()._withdraw()
        if self._cancel is not None:
            self._cancel()

    @property
    def _id(self) -> str:
        return self._route.batch_head.id_of(self._batch)

    def _begin_answer(self, head: AnswerHead) -> bool:
        """Send the head; False if it cannot be sent, and the client got an error instead."""
        said = RowsReply(head.status, b"", content_type=head.content_type, headers=head.headers)
        try:
            lines, _ = self._route.dialect.write(said, self._asked, batch_id=self._id)
        except Exception as error:
            self._withdraw()
            self.failed(error)
            return False
        self._status = head.status
        encoding = b"transfer-encoding: chunked\r\n" if self._is_chunked else b""
        self._connection.begin(self, head.status, self._opening_lines() + lines + encoding)
        return True

    def _opening_lines(self) -> bytes:
        return self._route.batch_head.opening_lines(self._batch, self._asked.rows, self._held_s)

    def _cut(self, status: int) -> None:
        """Close the connection in the middle of the answer."""
        self.response_complete = True
        transport = self._connection.transport
        if self._is_chunked and status != CLIENT_GONE:
            transport.close()  # when what has been yielded is sent
        else:
            transport.abort()  # for HTTP/1.0 a plain end would be that of the answer
        self._count(status)
