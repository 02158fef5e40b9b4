"""The bridge between a connection and an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from tests.gateway.client import Connection, Server
from tests.gateway.running import turns
from uncork_gateway.connection.asgi_request import AsgiRequest

GET = b"GET /x%20y?a=b HTTP/1.1\r\nHost: test\r\n\r\n"
App = Callable[[Any, Any, Any], Awaitable[None]]


def post(length: int, body: bytes = b"", *, extra: bytes = b"") -> bytes:
    """A POST whose body may come later."""
    return b"POST /x HTTP/1.1\r\nhost: test\r\n%bcontent-length: %d\r\n\r\n%b" % (extra, length, body)


def replies(
    *pieces: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = (), ends: bool = True
) -> App:
    """An application that replies without reading."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if ends:
            await send({"type": "http.response.body"})

    return app


async def answer(app: App, sent: bytes = GET) -> Connection:
    """A connection on which a request was answered."""
    connection = Connection(Server({}, app=app))
    connection.send(sent)
    await turns()
    return connection


def head(connection: Connection) -> bytes:
    return connection.received.partition(b"\r\n\r\n")[0]


async def test_the_scope_says_what_was_asked() -> None:
    """As the ASGI specification has it."""
    seen: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await replies()(scope, receive, send)

    await answer(app)
    [scope] = seen
    wanted = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/x y",
        "raw_path": b"/x%20y",
        "query_string": b"a=b",
        "root_path": "",
    }
    assert [name for name, _ in scope["headers"]] == [b"host", b"x-request-id"]
    assert {name: scope[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("version", "body", "stays"),
    [(b"1.1", b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", True), (b"1.0", b"abc", False)],
)
async def test_a_body_of_unknown_length(version: bytes, body: bytes, stays: bool) -> None:
    """In chunks; HTTP/1.0 knows none, there it ends with the connection."""
    connection = await answer(replies(b"ab", b"", b"c"), GET.replace(b"1.1", version))
    assert connection.received.partition(b"\r\n\r\n")[2] == body
    assert (b"transfer-encoding: chunked" in head(connection)) == stays
    assert connection.closed != stays


@pytest.mark.parametrize(("sent", "status"), [(GET.replace(b"GET", b"HEAD"), 200), (GET, 204), (GET, 304)])
async def test_some_replies_have_no_body(sent: bytes, status: int) -> None:
    """The application's body and length make no difference; the connection stays in step."""
    length = (b"content-length", b"3")
    connection = await answer(replies(b"abc", status=status, headers=(length,)), sent * 2)
    await turns()
    assert connection.received.count(b"HTTP/1.1 %d" % status) == 2
    assert b"abc" not in connection.received
    assert (b"content-length: 3" in connection.received) == (status != 204)
    assert b"transfer-encoding" not in connection.received
    assert not connection.closed


@pytest.mark.parametrize("pieces", [(b"ab",), (b"abcd",), (b"ab", b"cd"), ()])
async def test_a_wrong_length_ends_the_connection(pieces: tuple[bytes, ...]) -> None:
    """The client would take the next reply for the rest of this one, or the other way round."""
    connection = await answer(replies(*pieces, headers=((b"content-length", b"3"),)))
    assert connection.closed


async def test_an_application_that_fails_before_its_reply(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets 500 with an id, under which the log has the error."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    connection = await answer(app)
    [reply] = connection.replies()
    assert (reply.status, reply.headers["content-type"]) == (500, "application/problem+json")
    assert connection.closed
    assert "ZeroDivisionError" in caplog.text
    assert caplog.records[0].getMessage().split("[")[1].rstrip("]") in reply.body.decode()


async def test_a_header_of_more_than_one_line_is_not_sent() -> None:
    """Nor anything else of that reply."""
    connection = await answer(replies(headers=((b"x", b"a\r\ny: b"),)))
    [reply] = connection.replies()
    assert (reply.status, "y" in reply.headers) == (500, False)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("begins", [False, True])
async def test_an_application_that_returns_too_early(
    begins: bool, version: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply of HTTP/1.0 is reset: without a length or chunks, a normal close would complete it."""

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        return

    app = replies(b"a", ends=False) if begins else nothing
    connection = await answer(app, GET.replace(b"1.1", version))
    assert (connection.closed, connection.aborted) == (True, begins and version == b"1.0")
    assert connection.received.startswith(b"HTTP/1.1 200" if begins else b"HTTP/1.1 500")
    assert not connection.received.endswith(b"0\r\n\r\n")
    assert "returned before its response was complete" in caplog.text


class Reader:
    """An application that receives when it is allowed to."""

    def __init__(self) -> None:
        self.allowed = asyncio.Semaphore(0)
        self.received: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while not self.received or self.received[-1].get("more_body"):
            await self.allowed.acquire()
            self.received.append(await receive())


async def test_the_body_arrives_as_it_is_read() -> None:
    """No more than 64 KiB are kept for an application that does not read."""
    reader = Reader()
    connection = Connection(Server({}, app=reader))
    connection.send(post(200_000, b"x" * 50_000))
    await turns()
    reading = [connection.reading]
    connection.send(b"x" * 50_000)
    reading.append(connection.reading)
    reader.allowed.release()
    await turns()
    reading.append(connection.reading)
    assert [len(message["body"]) for message in reader.received] == [100_000]
    assert reading == [True, False, True]
    connection.send(b"x" * 100_000)
    reader.allowed.release()
    await turns()
    assert [message["more_body"] for message in reader.received] == [True, False]


async def test_the_application_receives_the_disconnect() -> None:
    reader = Reader()
    connection = Connection(Server({}, app=reader))
    connection.send(post(10))
    reader.allowed.release()
    await turns()
    connection.leave()
    await turns()
    assert [message["type"] for message in reader.received] == ["http.disconnect"]


async def test_a_client_that_waits_is_asked_for_the_body_when_it_is_read() -> None:
    """``Expect: 100-continue``."""
    reader = Reader()
    connection = Connection(Server({}, app=reader))
    connection.send(post(2, extra=b"expect: 100-Continue\r\n"))
    await turns()
    received = [connection.received]
    reader.allowed.release()
    await turns()
    received.append(connection.received)
    assert received == [b"", b"HTTP/1.1 100 Continue\r\n\r\n"]


async def test_a_client_that_was_not_asked_for_its_body_cannot_go_on() -> None:
    connection = await answer(replies(b"no"), post(2, extra=b"expect: 100-continue\r\n"))
    assert b"connection: close" in head(connection)
    assert connection.closed


async def test_a_body_that_is_not_read_does_not_disturb_the_next_request() -> None:
    connection = await answer(replies(b"ok"), post(100_000, b"x" * 90_000))
    assert connection.reading
    connection.send(b"x" * 10_000 + GET)
    await turns()
    assert [reply.status for reply in connection.replies()] == [200, 200]


async def test_a_body_that_is_not_read_is_not_kept_after_the_response() -> None:
    connection = await answer(
        replies(b"ok", headers=((b"content-length", b"2"),)), post(90_000, b"x" * 50_000)
    )
    assert connection.received.endswith(b"ok")
    request = connection.protocol._incoming
    assert isinstance(request, AsgiRequest)
    assert not request._body


async def test_a_client_that_does_not_read_stops_the_application() -> None:
    """Until it reads again, or leaves."""
    connection = Connection(Server({}, app=replies(b"a", b"b")))
    connection.send(GET)
    connection.protocol.pause_writing()
    await turns()
    assert not connection.received
    connection.protocol.resume_writing()
    await turns()
    assert connection.received.endswith(b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n")


async def test_the_application_may_end_the_connection() -> None:
    connection = await answer(replies(b"a", headers=((b"Connection", b"close"),)))
    assert connection.received.count(b"connection: close") == 1
    assert connection.closed


async def test_each_request_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With its status and the bytes that the application has read; 499 if the client has left."""
    caplog.set_level(logging.INFO, "uncork.access")

    reader = Reader()
    for app, sent in ((replies(b"a"), GET), (reader, post(5, b"12345")), (reader, post(5, b"12"))):
        server = Server({}, app=app)
        server.listener.access_log = True
        connection = Connection(server)
        connection.send(sent)
        reader.received.clear()
        reader.allowed.release()
        await turns()
        connection.leave()
        reader.allowed.release()
        await turns()
    logged = [
        (record.__dict__["status"], record.__dict__["request_bytes"])
        for record in caplog.records
        if record.name == "uncork.access"
    ]
    assert logged == [(200, 0), (500, 5), (499, 2)]


async def test_an_application_may_give_up_on_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """Closing would wait for the client to read. It is no fault, so nothing is logged."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await replies(b"a", ends=False)(scope, receive, send)
        raise ClientDisconnect

    connection = await answer(app)
    assert connection.aborted
    assert not caplog.records


@pytest.mark.parametrize("begun", [False, True])
async def test_a_stop_is_no_fault_of_the_application(begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets a refusal, or sees that its response is incomplete."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await replies(b"a", ends=False)(scope, receive, send)
        await asyncio.Event().wait()

    server = Server({}, app=app)
    connection = Connection(server)
    connection.send(GET)
    await turns()
    for task in list(server.state.tasks):
        task.cancel()
    await turns()

    assert connection.received.startswith(b"HTTP/1.1 200 " if begun else b"HTTP/1.1 503 ")
    assert connection.closed
    assert not connection.received.endswith(b"0\r\n\r\n")
    assert not caplog.records


async def test_a_rejected_body_is_logged_with_the_status_that_was_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The application takes the client for gone; the client has its reply."""
    caplog.set_level(logging.INFO, "uncork.access")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    server = Server({}, app=app)
    server.listener.access_log = True
    connection = Connection(server)
    connection.send(b"POST /x HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    await turns()
    connection.send(b"not a chunk\r\n")
    await turns()

    assert connection.received.startswith(b"HTTP/1.1 400 ")
    assert [record.__dict__["status"] for record in caplog.records] == [400]
