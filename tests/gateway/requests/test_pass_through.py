"""Relayed requests: unchanged heads and bodies, piece by piece, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.backends.model_servers.fake_server import fake_server
from tests.gateway.proxy_stage import Model, error, proxy, served
from tests.gateway.running import turns


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "POST"])
async def test_a_request_goes_on_as_it_came(method: str) -> None:
    """Method, path, query, headers and body are the same, except hop-by-hop headers."""
    target = "/a%2Fb//%7e/ready?x=%20&y=a+b&&z='"
    body = bytes(range(256))
    own = [("X-Two", "1"), ("x-two", "2"), ("Accept-Encoding", "br"), ("Cookie", "a=1"), ("User-Agent", "me")]
    own.append(("X-Request-Id", "one"))
    hop = [("Connection", "x-hop, keep-alive"), ("X-Hop", "1"), ("TE", "trailers"), ("Host", "elsewhere")]

    model = Model(lambda call: Answer(b"done", 200))
    async with served(model) as url, proxy(url) as on:
        sent = httpx.Request(method, on.http.base_url, headers=own + hop, content=body)
        sent.extensions["target"] = target.encode()
        reply = await on.http.send(sent)

        assert (reply.status_code, reply.content) == (200, b"done")
        [call] = model.calls
        assert (call.method, call.target, call.body) == (method.encode(), target.encode(), body)
        assert sorted(call.headers) == sorted(
            [(name.lower().encode(), value.encode()) for name, value in own]
            + [(b"content-length", b"256"), (b"host", url.removeprefix("http://").encode())]
        )


async def test_a_request_without_a_body_has_none() -> None:
    model = Model(lambda call: Answer(b"", 200))
    async with served(model) as url, proxy(url) as on:
        await on.http.get("/x")

        names = {name for name, _ in model.calls[0].headers}
        assert not names & {b"content-length", b"transfer-encoding", b"content-type"}


@pytest.mark.parametrize("status", [200, 207, 302, 404, 418, 500])
async def test_an_answer_comes_back_as_it_is(status: int) -> None:
    """Status, headers and body are the same; redirects and cookies are relayed."""
    headers = (
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"content-encoding", b"gzip"),
        (b"location", b"/elsewhere"),
        (b"x-empty", b""),
    )

    model = Model(lambda call: Answer(b"\x00\xffnot gzip", status, (*headers, (b"content-length", b"10"))))
    async with served(model) as url, proxy(url) as on:
        for _ in range(2):
            async with on.http.stream("GET", "/x", headers={"cookie": ""}) as reply:
                body = b"".join([piece async for piece in reply.aiter_raw()])
            on.http.cookies.clear()

            assert (reply.status_code, body) == (status, b"\x00\xffnot gzip")
            added = (b"date", b"server", b"x-request-id")
            got = [header for header in reply.headers.raw if header[0] not in added]
            assert sorted(got) == sorted([*headers, (b"content-length", b"10")])
        assert {call.header(b"cookie") for call in model.calls} <= {b"", None}


@pytest.mark.parametrize(
    ("method", "status", "promised"), [("HEAD", 200, 7), ("HEAD", 404, 0), ("GET", 304, 7), ("GET", 304, 0)]
)
async def test_an_answer_without_its_body(method: str, status: int, promised: int) -> None:
    """Such a reply may declare the body's length (RFC 9110, 8.6); the connection stays usable."""
    answer = Answer(b"", status, ((b"etag", b"1"),), missing=promised)
    async with fake_server(lambda call: answer) as server, proxy(server.url) as on:
        for _ in range(2):
            reply = await on.http.request(method, "/x")

            assert (reply.status_code, reply.content) == (status, b"")
            assert reply.headers["etag"] == "1"
            assert reply.headers["content-length"] == str(promised)
        assert server.calls[0].method == method.encode()


async def test_a_header_may_have_control_characters() -> None:
    """The library of the proxy accepts them, as some programs have them in their cookies."""
    answer = Answer(b"done", 200, ((b"x-note", b"a\x01b\x7fc"),))
    async with fake_server(lambda call: answer) as server, proxy(server.url) as on:
        reply = await on.http.get("/x")

        assert (reply.status_code, reply.content) == (200, b"done")
        assert (b"x-note", b"a\x01b\x7fc") in reply.headers.raw


async def test_a_cut_answer_of_http_1_0_is_reset() -> None:
    """It has neither a length nor chunks, so a normal end of the connection would be its end."""
    cut = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\nab\r\n"
    async with fake_server(lambda call: cut) as server, proxy(server.url) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.port)
        writer.write(b"GET /x HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_no_content() -> None:
    """204 has neither a body nor a length."""
    model = Model(lambda call: Answer(b"", 204))
    async with served(model) as url, proxy(url) as on:
        reply = await on.http.delete("/x")

        assert (reply.status_code, reply.content) == (204, b"")
        assert not {"content-length", "transfer-encoding"} & reply.headers.keys()


# Piece by piece


class Pieces:
    """An ASGI application that sends pieces when the test says so, and records its input."""

    def __init__(self) -> None:
        self.wanted: asyncio.Queue[bytes] = asyncio.Queue()
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request, then reply until an empty piece or the client's disconnect."""
        while (message := await receive())["type"] == "http.request":
            self.got.put_nowait(message["body"])
            if not message.get("more_body"):
                break
        gone = asyncio.create_task(self._watch(receive))
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while piece := await self.wanted.get():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await gone

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()
        self.wanted.put_nowait(b"")


@pytest.mark.parametrize("path", ["/v2/models/m/generate_stream", "/v1/chat/completions"])
async def test_an_answer_comes_piece_by_piece(path: str) -> None:
    server = Pieces()
    async with (
        served(server) as url,
        proxy(url) as on,
        on.http.stream("POST", path, json={"stream": True}) as reply,
    ):
        assert reply.headers["content-type"] == "text/event-stream"
        pieces = reply.aiter_raw()
        for piece in (b"data: 1\n\n", b"data: 2\n\n"):
            server.wanted.put_nowait(piece)
            assert await anext(pieces) == piece
        server.wanted.put_nowait(b"")
        assert [piece async for piece in pieces] == []


async def test_a_request_goes_piece_by_piece() -> None:
    server = Pieces()
    server.wanted.put_nowait(b"")

    async def body() -> AsyncIterator[bytes]:
        for piece in (b"one", b"two"):
            yield piece
            assert await server.got.get() == piece

    async with served(server) as url, proxy(url) as on:
        reply = await on.http.post("/x", content=body())

        assert (reply.status_code, reply.content) == (200, b"")


async def test_a_body_over_the_limit_is_refused() -> None:
    """As on the paths that are merged; the server sees nothing, or a request that breaks off."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"1234"
        yield b"5"

    model = Model(lambda call: Answer(b"", 200))
    async with served(model) as url, proxy(url, max_body_bytes=4) as on:
        bodies: list[bytes | AsyncIterator[bytes]] = [b"12345", pieces()]
        for body in bodies:
            reply = await on.http.put("/x", content=body)
            assert error(reply, 413) == "the body exceeds the limit of 4 bytes"
            assert reply.headers["connection"] == "close"
        assert (await on.http.put("/x", content=b"1234")).status_code == 200

        assert [call.body for call in model.calls] == [b"1234"]


async def test_a_client_who_leaves_a_stream_has_it_closed() -> None:
    """The server's work would be for nobody."""
    server = Pieces()
    async with served(server) as url, proxy(url) as on:
        async with on.http.stream("GET", "/x") as reply:
            server.wanted.put_nowait(b"first")
            assert await anext(reply.aiter_raw()) == b"first"
        await server.left.wait()


@pytest.mark.parametrize("body", [b"", b"content-length: 2\r\n\r\nab"])
async def test_a_client_who_leaves_before_the_answer_has_the_call_closed(body: bytes) -> None:
    async with fake_server(lambda call: None) as server, proxy(server.url) as on:
        _, writer = await asyncio.open_connection("127.0.0.1", on.port)
        writer.write(b"POST /x HTTP/1.1\r\nhost: a\r\n" + (body or b"\r\n"))
        await server.called.wait()
        writer.close()
        await writer.wait_closed()
        await server.hung_up.wait()

        assert [call.body for call in server.calls] == [body[-2:]]


async def test_a_client_who_leaves_while_it_sends_has_the_call_closed() -> None:
    server = Pieces()
    server.wanted.put_nowait(b"")
    async with served(server) as url, proxy(url) as on:
        _, writer = await asyncio.open_connection("127.0.0.1", on.port)
        writer.write(b"PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc")
        assert await server.got.get() == b"abc"
        writer.close()
        await writer.wait_closed()
        await server.left.wait()


# Failures


async def test_a_server_that_has_gone_is_502() -> None:
    async with fake_server(lambda call: None) as server, proxy(server.url) as on:
        await server.stop()

        message = error(await on.http.get("/x"), 502)

        assert message.startswith("the server did not respond: ConnectError")


async def test_a_silent_server_is_504() -> None:
    """It has the time of a call; then its connection is closed."""
    async with fake_server(lambda call: None) as server, proxy(server.url, timeout_s=0.02) as on:
        while not server.hung_up.is_set():  # on a busy machine, the time may pass before it is connected
            message = error(await on.http.get("/x"), 504)
            assert message.startswith("the server did not respond before the timeout: ")
            await turns()


@pytest.mark.parametrize("headers", [(), ((b"connection", b"close"),)])
async def test_an_answer_that_breaks_off_breaks_off(
    headers: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The client sees that the response is incomplete; the log says why, without a traceback."""
    answer = Answer(b"half", 200, headers, missing=4)
    async with fake_server(lambda call: answer) as server, proxy(server.url) as on:
        with pytest.raises(httpx.RemoteProtocolError):
            await on.http.get("/x")
        await turns()
    [said] = [
        record
        for record in caplog.records
        if record.name == "uncork.gateway" and record.levelname in ("WARNING", "ERROR")
    ]
    assert "a server cut its response to" in said.getMessage()
    assert "Traceback" not in caplog.text


async def test_the_stop_of_the_proxy_is_no_fault_of_a_server(caplog: pytest.LogCaptureFixture) -> None:
    """The client sees that its stream is incomplete; the log says nothing."""
    server = Pieces()
    async with served(server) as url, proxy(url) as on, on.http.stream("GET", "/x") as reply:
        server.wanted.put_nowait(b"first")
        pieces = reply.aiter_raw()
        assert await anext(pieces) == b"first"
        await on.proxy._close_pass_through()
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(pieces)
        await server.left.wait()

    assert [record for record in caplog.records if record.name == "uncork.gateway"] == []
