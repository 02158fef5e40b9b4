"""Bridges requests from an HTTP connection to the ASGI application, Starlette."""

import asyncio
import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from uncork_gateway.connection.parser import RequestParser
from uncork_gateway.connection.parts import ConnectionOfParts
from uncork_gateway.connection.timeouts import reset
from uncork_gateway.errors import (
    CLIENT_GONE,
    PROBLEM_JSON,
    BadGateway,
    BadRequest,
    GatewayError,
    HandlerFailed,
    draining,
    problem,
    unexpected,
)
from uncork_gateway.headers import CONTENT_LENGTH, WITHOUT_BODY, Header, header_lines, with_request_id
from uncork_gateway.interfaces import Connection, QueuedRequest
from uncork_gateway.telemetry.access_log import log_request

log = logging.getLogger("uncork.gateway")

_NOT_IN_HEADERS = re.compile(rb"[\0\r\n]")
_HOP_BY_HOP = (b"connection", b"transfer-encoding")


@dataclass(slots=True, eq=False)
class Refusal:
    """Queued in place of the unreadable request, so that earlier requests get their responses first."""

    connection: Connection
    error: GatewayError
    request_id: bytes
    keep_alive: bool = False
    cors: bytes = b""

    def start(self) -> None:
        if self.connection.observers.access_log:
            log_request("-", b"-", self.error.status, 0.0, size=0, request_id=self.request_id)
        reply_problem(self.connection, self, self.error)

    def disconnect(self) -> None:
        pass  # nothing is running


def reply_problem(connection: Connection, request: QueuedRequest, error: GatewayError) -> None:
    """Respond to a started request with a problem document, and close the connection."""
    request.keep_alive = False
    head = header_lines([*error.headers(), (b"content-type", PROBLEM_JSON.encode())])
    body = problem(error.status, str(error), error.reason, request.request_id)
    connection.reply(request, error.status, head, body)


class AsgiRequest:
    """One request to the ASGI application, which runs in a task of its own."""

    def __init__(
        self, connection: ConnectionOfParts, app: ASGIApp, scope: Scope, *, keep_alive: bool
    ) -> None:
        self.keep_alive = keep_alive
        self.request_id = self.cors = b""
        self._arrived = time.perf_counter()
        self._connection = connection
        self._app = app
        self._scope = scope
        self._expects_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
        )
        self._comes_in_chunks = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        self._body = bytearray()
        self._received_bytes = 0
        self._is_whole = False
        self._changed = asyncio.Event()
        """Set when the application may receive something."""
        self._started = self._reply_begun = False
        self._closed = False
        """True if the response is complete, or cannot be sent any more."""
        self._error: GatewayError | None = None
        self._status = CLIENT_GONE
        self._has_body = self._is_chunked = False
        self._ends_with_connection = False
        """True if only the end of the connection ends the response."""
        self._missing_bytes: int | None = None
        """The bytes that the response's body still lacks, if its length was declared."""

    # Called by the connection

    def start(self) -> None:
        self._started = True
        if self._error is None:
            self._connection.create_task(self._run())
        else:
            self._reply_error(self._error)
            self._log()

    def body_received(self, piece: bytes) -> None:
        if self._closed:
            return
        self._body += piece
        if len(self._body) > HIGH_WATER_LIMIT:
            self._connection.flow.pause_reading()
        self._changed.set()

    def body_complete(self) -> None:
        self._is_whole = True
        self._changed.set()

    def reject(self, error: GatewayError) -> None:
        """Reply with an error if no response has begun; the application sees a disconnect."""
        self.disconnect()
        if self._reply_begun:
            self._break_off()
        elif self._started:
            self._reply_error(error)
        else:
            self.keep_alive = False
            self._error = error

    def disconnect(self) -> None:
        """Make :meth:`receive` return a disconnect."""
        self._closed = True
        self._body.clear()
        self._changed.set()

    # Called by the application

    async def receive(self) -> Message:
        """Receive the next piece of the body, or the disconnect."""
        if self._expects_continue and not (self._is_whole or self._reply_begun or self._closed):
            self._connection.send_continue()
        self._expects_continue = False
        if not self._closed:
            self._connection.flow.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self._closed:
            return {"type": "http.disconnect"}
        body = bytes(self._body)
        self._body.clear()
        self._received_bytes += len(body)
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    async def send(self, message: Message) -> None:
        """Send the next part of the response; ignore it if the response has ended or the client has gone."""
        await self._connection.flow.drain()
        if self._closed or self._connection.transport.is_closing():
            return
        if self._reply_begun:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            self._begin_reply(message["status"], message.get("headers", ()))

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self.receive, self.send)
        except ClientDisconnect:
            self._give_up()
        except asyncio.CancelledError:  # The server stops.
            if not self._closed:
                self._fail(draining())
        except BadGateway as error:  # The proxy has logged it.
            if not self._closed:
                self._fail(error)
        except BaseException as error:
            failure = unexpected(error)
            if not self._closed:
                self._fail(failure)
        else:
            if not (self._closed or self._connection.transport.is_closing()):
                log.error("the ASGI application returned before its response was complete")
                self._fail(HandlerFailed("internal error"))
        self._log()

    def _give_up(self) -> None:
        """Abort the connection: the client has gone, or the application failed in the middle of a response.

        Closing it would wait until the client has read the rest.
        """
        if not self._closed:
            self._status = CLIENT_GONE
            self.disconnect()
            reset(self._connection.transport)

    def _fail(self, failure: GatewayError) -> None:
        self.disconnect()
        if self._reply_begun:
            self._status = failure.status
            self._break_off()
        else:
            self._reply_error(failure)

    def _break_off(self) -> None:
        """Close the connection; the client sees by the missing end that the response is incomplete."""
        if self._ends_with_connection:
            reset(self._connection.transport)  # A normal close would be its end.
        else:
            self._connection.hang_up()

    def _reply_error(self, error: GatewayError) -> None:
        self._status = error.status
        reply_problem(self._connection, self, error)

    def _log(self) -> None:
        if self._connection.observers.access_log:
            log_request(
                self._scope["method"],
                self._scope["raw_path"],
                self._status,
                time.perf_counter() - self._arrived,
                size=self._received_bytes,
                request_id=self.request_id,
            )

    def _begin_reply(self, status: int, headers: Iterable[Header]) -> None:
        kept = []
        for name, value in headers:
            if _NOT_IN_HEADERS.search(name) or _NOT_IN_HEADERS.search(value):
                raise ValueError(f"response header {name!r} has a line break or NUL: {value!r}")
            name = name.lower()
            if name == CONTENT_LENGTH:
                self._missing_bytes = int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
            # A 304 may have the length of the 200.
            if name not in _HOP_BY_HOP and (name != CONTENT_LENGTH or status != HTTPStatus.NO_CONTENT):
                kept.append((name, value))
        self._has_body = self._scope["method"] != "HEAD" and status not in WITHOUT_BODY
        # HTTP/1.0 has no chunks: without a length, the end of the connection is that of the body.
        is_endless = self._has_body and self._missing_bytes is None
        self._is_chunked = is_endless and self._scope["http_version"] != "1.0"
        self._ends_with_connection = is_endless and not self._is_chunked
        if self._ends_with_connection:
            self.keep_alive = False
        if self._is_chunked:
            kept.append((b"transfer-encoding", b"chunked"))
        if (self._expects_continue or self._comes_in_chunks) and not self._is_whole:
            # The client may send the body or not; and one of unknown length may become too large.
            self.keep_alive = False
        self._reply_begun, self._status = True, status
        self._connection.begin_reply(self, status, header_lines(kept))

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self._has_body:
            if self._missing_bytes is not None:
                self._missing_bytes -= len(body)
                if self._missing_bytes < 0 or (is_last and self._missing_bytes):
                    raise ValueError("the response body does not match its Content-Length")
            elif self._is_chunked:
                # An empty chunk would be the last.
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n" * is_last
            if body:
                self._connection.transport.write(body)
        if is_last:
            self.disconnect()
            self._connection.end_reply(self)


def connection_scope(transport: asyncio.Transport, app_state: dict[str, Any]) -> Scope:
    """Return the part of the ASGI scope that all requests of a connection share."""
    return {
        "server": get_local_addr(transport),
        "client": get_remote_addr(transport),
        "scheme": "https" if is_ssl(transport) else "http",
        "state": app_state,
    }


def request_scope(connection: Scope, parser: RequestParser, request_id: bytes) -> Scope:
    """Return the ASGI scope of the request that was parsed last, with this id.

    Raises:
        BadRequest: if the target has no path.
    """
    try:
        url = httptools.parse_url(parser.target)
    except httptools.HttpParserError:
        url = None
    if url is None or url.path is None:
        raise BadRequest("the request target must be a path or a URL with a path")
    headers = with_request_id([(name.lower(), value) for name, value in parser.headers], request_id)
    return {
        **connection,
        "state": connection["state"].copy(),
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": parser.http_version,
        "method": parser.method.decode("ascii"),
        "root_path": "",
        "path": unquote(url.path.decode("ascii")),
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": list(headers),
    }
