"""Servers that send more than one response to a request: nobody gets the rest."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from tests.gateway.backends.model_servers.fake_server import Call, fake_server
from tests.gateway.proxy_stage import predictions, proxy, rows_body
from tests.gateway.running import turns

CHUNKED = b"transfer-encoding: chunked"


def ok(body: bytes, *lines: bytes, status: bytes = b"200 OK") -> bytes:
    """A response with a length, unless other lines say how long it is."""
    lines = lines or (b"content-length: %d" % len(body),)
    return b"\r\n".join((b"HTTP/1.1 " + status, b"content-type: application/json", *lines, b"", body))


POISON = ok(b'{"predictions":[666]}')


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def answer(call: Call) -> bytes:
    return json.dumps({"predictions": json.loads(call.body)["instances"]}).encode()


MORE = {
    "another response": lambda body: ok(body) + POISON,
    "two responses": lambda body: ok(body) + POISON * 2,
    "text": lambda body: ok(body) + b"more",
    "half a head": lambda body: ok(body) + b"HTTP/1.1 20",
    "after chunks": lambda body: ok(chunked(body), CHUNKED) + POISON,
    "after interim responses": lambda body: b"HTTP/1.1 103 Hints\r\nx: y\r\n\r\n" * 2 + ok(body) + POISON,
    "a long response": lambda body: ok(body + b" " * (2**18 - len(body))) + POISON,
    "both lengths": lambda body: ok(chunked(body), b"content-length: 3", CHUNKED) + POISON,
}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("more", MORE)
async def test_what_follows_a_response_to_a_merged_call_is_dropped(
    more: str, tls: bool, tmp_path: Path
) -> None:
    """The connection ends; the next request gets its own answer on another."""
    authority = trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    context = ssl_context(authority) if tls else None
    async with (
        fake_server(lambda call: MORE[more](answer(call)), tls=context) as server,
        proxy(server.url, server_ca=tmp_path / "ca.pem" if tls else None) as on,
    ):
        for row in range(4):
            assert predictions(await on.ask(rows_body(row)).reply()) == [row]
        assert [json.loads(call.body)["instances"] for call in server.calls] == [[row] for row in range(4)]
        assert len({call.connection for call in server.calls}) == 4


def ssl_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("tls", [False, True])
async def test_another_response_in_a_record_of_its_own_is_dropped(tls: bool, tmp_path: Path) -> None:
    """TLS has read it from the socket together with the first."""
    authority = trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    async with (
        fake_server(
            lambda call: [ok(answer(call)), POISON], tls=ssl_context(authority) if tls else None
        ) as server,
        proxy(server.url, server_ca=tmp_path / "ca.pem" if tls else None) as on,
    ):
        for row in range(3):
            assert predictions(await on.ask(rows_body(row)).reply()) == [row]


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("GET", ok(b"{}") + POISON),
        ("GET", ok(b"", b"content-length: 0", status=b"204 No Content") + b"{}" + POISON),
        ("GET", ok(b"{}", b"content-length: 2", status=b"204 No Content")),
        ("GET", ok(b"{}", b"content-length: 2", status=b"304 Not Modified")),
        ("GET", ok(chunked(b"{}"), CHUNKED, status=b"304 Not Modified")),
        ("HEAD", ok(b"{}")),
        ("HEAD", ok(b"{}" + POISON, b"content-length: 2")),
        ("HEAD", ok(chunked(b"{}"), CHUNKED)),
        ("GET", ok(b"{}", b"connection: close") + POISON),
    ],
)
async def test_what_follows_a_response_that_passes_through_is_dropped(method: str, data: bytes) -> None:
    """The next request, which may be another client's, gets its own answer."""

    def script(call: Call) -> bytes:
        return ok(call.target) if call.target == b"/next" else data

    async with fake_server(script) as server, proxy(server.url) as on:
        for _ in range(2):
            await on.http.request(method, "/x")
            reply = await on.http.get("/next")
            assert (reply.status_code, reply.content) == (200, b"/next")
        assert server.calls[0].connection != server.calls[1].connection


@pytest.mark.parametrize(
    "write",
    [
        ok,
        lambda body: ok(chunked(body), CHUNKED),
        lambda body: b"HTTP/1.1 102 Wait\r\n\r\n" + ok(body),
    ],
)
async def test_a_connection_with_one_response_to_each_request_is_used_again(
    write: Callable[[bytes], bytes],
) -> None:
    async with fake_server(lambda call: write(answer(call))) as server, proxy(server.url) as on:
        for row in range(3):
            assert predictions(await on.ask(rows_body(row)).reply()) == [row]
        assert len({call.connection for call in server.calls}) == 1


async def test_a_response_that_comes_unasked_is_dropped() -> None:
    """It arrives while the connection is idle."""
    async with fake_server(lambda call: ok(answer(call))) as server, proxy(server.url) as on:
        assert predictions(await on.ask(rows_body(1)).reply()) == [1]
        server.write(POISON)
        await turns(50)
        assert predictions(await on.ask(rows_body(2)).reply()) == [2]


async def test_a_length_beside_chunks_is_not_passed_on() -> None:
    """The chunks say how long the body is."""
    data = ok(chunked(b"{}"), b"content-length: 9", CHUNKED)
    async with fake_server(lambda call: data) as server, proxy(server.url) as on:
        reply = await on.http.get("/x")

        assert (reply.status_code, reply.content) == (200, b"{}")
        assert "content-length" not in reply.headers
