"""The port for gRPC, with the clients of grpcio over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
import trustme

from tests.gateway.grpc.http2.peer import EchoCall, Server
from tests.gateway.running import turns
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import offer_http2

T = TypeVar("T")
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
ECHO, STREAM, HANG, NONE = "/t.T/Echo", "/t.T/Stream", "/t.T/Hang", "/t.T/None"


@asynccontextmanager
async def listening(
    make_call: Any = EchoCall, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Server, str]]:
    """A server on a port; yields it and its address."""
    server = Server(limits=GrpcLimits(max_message_bytes=10_000_000), make_call=make_call)
    bound = socket.create_server(("127.0.0.1", 0))
    await server.listener.start(bound, tls=tls)
    try:
        yield server, f"127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.listener.close()
        while server.listener.connections:
            await turns(1)


def connected(address: str, credentials: grpc.ChannelCredentials | None = None) -> Any:
    """Return an asynchronous channel; its types know only methods with messages of protobuf."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    return grpc.aio.secure_channel(address, credentials, OPTIONS)


async def in_thread(work: Callable[[Any], T], address: str) -> T:
    """Run the work of a synchronous client."""

    def run() -> T:
        with grpc.insecure_channel(address, OPTIONS) as channel:
            return work(channel)

    return await asyncio.to_thread(run)


@pytest.mark.parametrize("size", [0, 16_379, 8_000_000])
@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
async def test_unary_calls(size: int, compression: grpc.Compression) -> None:
    body = b"x" * size
    async with listening() as (server, address):
        found = await in_thread(
            lambda channel: channel.unary_unary(ECHO)(body, compression=compression), address
        )
        assert found == body
        assert server.pool.used_bytes == 0


async def test_many_calls_at_once_and_one_after_the_other() -> None:
    def work(channel: Any) -> list[bytes]:
        echo = channel.unary_unary(ECHO)
        at_once = [echo.future(b"%d" % each) for each in range(300)]
        return [future.result() for future in at_once] + [echo(b"%d" % each) for each in range(300, 400)]

    async with listening() as (server, address):
        assert await in_thread(work, address) == [b"%d" % each for each in range(400)]
        assert len({call.stream.connection.number for call in server.calls}) == 1


@pytest.mark.parametrize(
    ("path", "body", "options", "code"),
    [
        (NONE, b"", {}, grpc.StatusCode.UNIMPLEMENTED),
        (ECHO, bytes(10_000_001), {}, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (HANG, b"", {"timeout": 0.1}, grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
async def test_errors(path: str, body: bytes, options: Any, code: grpc.StatusCode) -> None:
    """The channel continues."""
    async with (
        listening() as (server, address),
        connected(address) as channel,
    ):
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(path)(body, **options)
            assert error.value.code() is code
        assert await channel.unary_unary(ECHO)(b"next") == b"next"
        assert len({call.stream.connection.number for call in server.calls}) == 1


async def test_old_connections_are_replaced_without_an_error() -> None:
    server = Server(limits=GrpcLimits(max_message_bytes=1000, max_connection_age_s=0.2))
    bound = socket.create_server(("127.0.0.1", 0))
    await server.listener.start(bound)
    address = f"127.0.0.1:{bound.getsockname()[1]}"
    async with connected(address) as channel:
        echo = channel.unary_unary(ECHO)
        while len({call.stream.connection.number for call in server.calls}) < 3:
            assert await echo(b"x") == b"x"
    server.listener.close()
    await server.listener.drained()


async def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    offer_http2(context)
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with (
        listening(tls=context) as (server, address),
        connected(address, credentials) as channel,
    ):
        body = bytes(5_000_000)
        assert await channel.unary_unary(ECHO)(body) == body
        server.listener.drain()
        await server.listener.drained()
