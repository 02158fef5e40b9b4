"""Clients that behave oddly, where it matters that the socket is real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.server import PROBE, Server, eventually, serving
from tests.loops import HANG_S
from uncork.server import listeners
from uncork.server.listeners import listening_socket


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(PROBE, "--max-body-bytes", "100000") as running:
        yield running


def post(path: str, body: bytes, *, length: int | None = None) -> bytes:
    """A request that may promise more than it brings."""
    length = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode() + body


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_ends_of_clients(server: Server) -> None:
    """One that only ends its sending is answered; one that is refused while it sends can read why."""
    with server.connect() as half:
        half.sendall(post("/sleep", b"0.3"))
        half.shutdown(socket.SHUT_WR)
        received = read_all(half)
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert received.startswith(interim)
        assert received.replace(interim, b"").startswith(b"HTTP/1.1 200 OK\r\n")

    with server.connect() as sender:
        sender.sendall(post("/add", b"x" * 1000, length=50_000_000))
        for _ in range(200):
            sender.sendall(b"x" * 10_000)
        sender.shutdown(socket.SHUT_WR)
        assert read_all(sender).startswith(b"HTTP/1.1 413 ")

    with server.connect() as hanging:
        hanging.sendall(post("/remember", b'"held"'))
        hanging.close()
    with server.connect() as asking:
        asking.sendall(post("/recall", b"0"))
        assert asking.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_clients_that_leave_in_a_storm_are_taken_out_of_the_queue(server: Server) -> None:
    """Of two hundred that close while another is served, none is run; their connections are gone."""

    def left() -> float:
        return server.metric("uncork_requests_total", status="499")

    before = left()
    with server.connect() as busy:
        busy.sendall(post("/sleep", b"2"))
        eventually(lambda: server.metric("uncork_workers", state="busy") == 1)
        leaving = [server.connect() for _ in range(200)]
        for connection in leaving:
            connection.sendall(post("/remember", b'"left"'))
        eventually(lambda: server.metric("uncork_queue_rows", api="remember") == 200)
        for connection in leaving:
            connection.close()
        eventually(lambda: server.metric("uncork_queue_rows", api="remember") == 0)
        assert busy.recv(65536).startswith(b"HTTP/1.1 200 ")
    with server.connect() as asking:
        asking.sendall(post("/recall", b"0"))
        assert b'"left"' not in asking.recv(65536)
    assert left() == before + 200


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such limit")
def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system; the limit of the listening socket holds for its connections."""
    monkeypatch.setattr(listeners, "_UNREAD_MS", 300)

    async def scenario() -> Exception | None:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[Exception | None] = loop.create_future()

        class Talker(asyncio.Protocol):
            """Says more than fits into any buffer."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.WriteTransport)
                transport.write(bytes(50_000_000))

            def connection_lost(self, exc: Exception | None) -> None:
                lost.set_result(exc)

        with listening_socket("127.0.0.1", 0, option="--port") as listener, socket.socket() as client:
            server = await loop.create_server(Talker, sock=listener)
            client.connect(listener.getsockname())
            async with server, asyncio.timeout(HANG_S):
                return await lost

    assert isinstance(asyncio.run(scenario()), OSError)
