"""The port for gRPC, with the client of grpcio over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import constants
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trustme

from tests.gateway.grpc.http2.peer import Server
from tests.gateway.running import turns
from tests.loops import HANG_S, until
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.grpc.http2.limits import GrpcLimits

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@asynccontextmanager
async def echoing(
    *, tls: ssl.SSLContext | None = None, credentials: grpc.ChannelCredentials | None = None, **limits: Any
) -> AsyncIterator[tuple[Server, Any]]:
    """A server on a port; yields it and a method that returns its message."""
    server = Server(limits=GrpcLimits(max_message_bytes=10_000_000, **limits))
    bound = socket.create_server(("127.0.0.1", 0))
    await server.listener.start(bound, tls=tls)
    address = f"127.0.0.1:{bound.getsockname()[1]}"
    if credentials is None:
        channel: Any = grpc.aio.insecure_channel(address, options=OPTIONS)
    else:
        channel = grpc.aio.secure_channel(address, credentials, OPTIONS)
    try:
        async with channel:
            yield server, channel.unary_unary("/t.T/Echo")
            server.listener.drain()
        await server.listener.drained()
    finally:
        server.listener.close()


@pytest.mark.parametrize("size", [0, 16_379, 8_000_000])
@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
async def test_unary_calls(size: int, compression: grpc.Compression) -> None:
    async with echoing() as (server, echo):
        assert await echo(b"x" * size, compression=compression) == b"x" * size
        assert server.pool.used_bytes == 0


async def test_old_connections_are_replaced_without_an_error() -> None:
    async with echoing(max_connection_age_s=0.2) as (server, echo):
        while len({call.stream.connection.number for call in server.calls}) < 3:
            assert await echo(b"x") == b"x"


async def test_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    authority.issue_cert("127.0.0.1").configure_cert(context)
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with echoing(tls=context, credentials=credentials) as (_, echo):
        assert await echo(bytes(5_000_000)) == bytes(5_000_000)


async def test_a_tls_handshake_has_the_time_of_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts to no limit on connections, so it must not last for the minute of asyncio."""
    monkeypatch.setattr(constants, "SSL_HANDSHAKE_TIMEOUT", 2 * HANG_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = Server(clients=ClientLimits(head_timeout_s=0.05))
    bound = socket.create_server(("127.0.0.1", 0))
    await server.listener.start(bound, tls=context)
    reader, writer = await asyncio.open_connection(*bound.getsockname())
    assert await reader.read() == b""
    writer.close()
    server.listener.close()


@pytest.mark.parametrize("is_forced", [False, True])
async def test_serving_ends_with_the_last_connection_or_by_force(is_forced: bool) -> None:
    server, bound = Server(), socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.listener.serve(bound))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{bound.getsockname()[1]}") as channel:
        hang: Any = channel.unary_unary("/t.T/Hang")
        call = hang(b"x")
        await until(lambda: bool(server.calls and server.calls[0].events))
        server.listener.exit()
        await turns()
        assert not serving.done()
        if is_forced:
            server.listener.force_exit()
        else:
            server.calls[0].stream.reply(b"late", ())
            assert await call == b"late"
        await serving
    assert server.calls[0].events[-1] == ("cancelled" if is_forced else "end")
