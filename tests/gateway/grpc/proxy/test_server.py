"""Calls to a gRPC server: what is sent, what its answers mean, and its health."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from tests.gateway.grpc.proxy.fake_grpc_server import Call, FakeGrpcServer, Pairs, Reply, fake_grpc_server, ok
from uncork_gateway.backends.model_servers.server import (
    CallStatus,
    ConnectionLost,
    NoAnswerInTime,
    ServerResponse,
    read_addresses,
)
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.proxy.server import GrpcServer, grpc_servers
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.protocols.wire import Content

INFER = b"/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
READY = "/inference.GRPCInferenceService/ServerReady"


def echo(call: Call) -> Reply:
    return ok(call.body)


@contextlib.asynccontextmanager
async def client(url: str, *, ca: Path | None = None) -> AsyncIterator[GrpcServer]:
    (server,) = grpc_servers(read_addresses([url]), ca=ca)
    try:
        yield server
    finally:
        await server.close()


async def exchange(
    server: GrpcServer, body: bytes = b"x", headers: tuple[tuple[bytes, bytes], ...] = (), **options: Any
) -> ServerResponse:
    arguments = {"silence_s": 60.0, "time_left_s": math.inf, "idempotent": True, **options}
    return await server.exchange(INFER, Content(body, headers), **arguments)


async def test_messages_and_metadata_arrive_as_they_are() -> None:
    """In both directions, without what belongs to one connection."""
    reply = Reply(
        messages=(b"\x00\xffreply",),
        metadata=(("x-model", "m"), ("x-model-bin", b"\xff\x00")),
        trailers=(("x-cost", "5"), ("x-cost", "6")),
    )
    headers = (
        (b"authorization", b"Bearer key"),
        (b"x-trace-bin", b"/wA"),
        (b"x-twice-bin", b"YQ==,Yg"),
        (b"te", b"trailers"),
        (b"host", b"elsewhere"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"mine"),
        (b"grpc-timeout", b"1S"),
    )
    async with fake_grpc_server(lambda call: reply) as fake, client(fake.url) as server:
        response = await exchange(server, b"body\x00", headers)

        assert response == ServerResponse(
            200,
            ((b"x-model", b"m"), (b"x-model-bin", b"/wA")),
            b"\x00\xffreply",
            CallStatus(Code.OK, "", ((b"x-cost", b"5"), (b"x-cost", b"6"))),
        )
        (call,) = fake.calls
        assert (call.path, call.body) == (INFER.decode(), b"body\x00")
        assert call.time_left_s == pytest.approx(60, abs=1)
        assert call.metadata == (
            ("authorization", "Bearer key"),
            ("x-trace-bin", b"\xff\x00"),
            ("x-twice-bin", b"a"),
            ("x-twice-bin", b"b"),
        )


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            (b"x-name", b"caf\xc3\xa9"),
            "the metadata 'x-name' has characters other than printable ASCII",
        ),
        ((b"x-name", b"a\nb"), "the metadata 'x-name' has characters other than"),
        ((b"x-a-bin", b"?"), "the metadata 'x-a-bin' is not base64"),
        ((b"x-a-bin", b"YQ=a"), "the metadata 'x-a-bin' is not base64"),
        ((b"x a", b"1"), "the metadata name 'x a' is not valid; use letters"),
        ((b"X" * 4000, b"1"), f"the metadata name '{'X' * 100}' is not valid"),
        ((b"x" * 4000, b"\n"), f"the metadata '{'x' * 100}' has"),
        ((b"x" * 4000 + b"-bin", b"?"), f"the metadata '{'x' * 100}' is not base64"),
    ],
)
async def test_metadata_that_cannot_be_sent_is_the_clients_fault(
    header: tuple[bytes, bytes], message: str
) -> None:
    async with client("grpc://127.0.0.1:1") as server:
        with pytest.raises(BadRequest, match=message):
            await exchange(server, headers=(header,))


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        (Code.INVALID_ARGUMENT, "unexpected shape for input 'x'", 400),
        (Code.NOT_FOUND, "Servable not found for request: Latest(m)", 404),
        (Code.RESOURCE_EXHAUSTED, "quota exceeded", 429),
        (Code.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (5000000 vs. 4194304)", 413),
        (Code.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4194304: 5000000", 413),
        (Code.UNAVAILABLE, "Exceeds maximum queue size", 503),
        (Code.DEADLINE_EXCEEDED, "Request timeout expired", 504),
        (Code.INTERNAL, "onnx runtime error", 500),
        (Code.UNKNOWN, "Unexpected <class 'ValueError'>", 500),
        (Code.DATA_LOSS, "", 500),
        (Code.CANCELLED, "the server cancelled", 499),
        (Code.UNIMPLEMENTED, "no", 501),
        (Code.UNAUTHENTICATED, "who?", 401),
    ],
)
async def test_a_code_becomes_a_status_and_travels_along(code: Code, text: str, status: int) -> None:
    reply = Reply(code=code, text=text, trailers=(("x-more", "1"), ("grpc-status-details-bin", b"\x01")))
    async with fake_grpc_server(lambda call: reply) as fake, client(fake.url) as server:
        trailers = ((b"x-more", b"1"), (b"grpc-status-details-bin", b"AQ"))
        assert await exchange(server) == ServerResponse(status, (), b"", CallStatus(code, text, trailers))


@pytest.mark.parametrize("timeout_s", [9.3e9, math.inf])
async def test_a_timeout_beyond_grpcio_s_clock_ends_no_call(timeout_s: float) -> None:
    async with fake_grpc_server(echo) as fake, client(fake.url) as server:
        assert (await exchange(server, silence_s=timeout_s)).status == 200
        stream = server.stream(INFER.decode(), (), timeout_s=timeout_s)
        await stream.write(b"x")
        await stream.done_writing()
        assert await stream.read() == b"x"


@pytest.mark.parametrize(
    ("code", "pushback", "rest_s"),
    [
        (Code.UNAVAILABLE, "1500", 1.5),
        (Code.RESOURCE_EXHAUSTED, "20", 0.02),
        (Code.UNAVAILABLE, "3600000", 30),
        (Code.UNAVAILABLE, "-1", 0),
        (Code.UNAVAILABLE, "soon", 0),
        (Code.UNAVAILABLE, None, 0),
        (Code.INTERNAL, "1500", 0),
        (Code.OK, "1500", 0),
    ],
)
async def test_push_back_asks_for_a_rest(code: Code, pushback: str | None, rest_s: float) -> None:
    trailers: Pairs = () if pushback is None else (("grpc-retry-pushback-ms", pushback),)
    reply = Reply(messages=() if code else (b"",), code=code, trailers=trailers)
    async with fake_grpc_server(lambda call: reply) as fake, client(fake.url) as server:
        assert server.asked_rest_s(await exchange(server)) == rest_s


async def test_messages_over_4_mib_arrive() -> None:
    body = b"x" * 5 * 2**20
    async with (
        fake_grpc_server(echo, max_receive_message_length=-1) as fake,
        client(fake.url) as server,
    ):
        assert (await exchange(server, body)).body == body


async def test_a_message_over_the_servers_limit_is_too_large() -> None:
    """The text decides: overload has the same code, and the size may be that of several requests."""
    async with fake_grpc_server(echo) as fake, client(fake.url) as server:
        response = await exchange(server, b"x" * 5 * 2**20)
        assert response.status == 413
        assert response.call is not None
        assert response.call.code == Code.RESOURCE_EXHAUSTED


# Time


@pytest.mark.parametrize("time_left_s", [0.05, -1.0])
async def test_when_clients_have_given_up_the_deadline_is_theirs(time_left_s: float) -> None:
    async with fake_grpc_server(lambda call: None) as fake, client(fake.url) as server:
        response = await exchange(server, time_left_s=time_left_s)
        assert response.status == 504
        assert response.call is not None
        assert response.call.code == Code.DEADLINE_EXCEEDED


async def test_a_server_that_is_silent_for_too_long_is_given_up() -> None:
    async with fake_grpc_server(lambda call: None) as fake, client(fake.url) as server:
        with pytest.raises(NoAnswerInTime):
            await exchange(server, silence_s=0.05)
        await fake.cancelled.wait()


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    async with fake_grpc_server(lambda call: None) as fake, client(fake.url) as server:
        calling = asyncio.ensure_future(exchange(server))
        await fake.called(1)
        calling.cancel()
        await fake.cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await calling


# Connections


async def test_a_connection_that_breaks_is_lost_and_made_again() -> None:
    async with fake_grpc_server(lambda call: None) as fake, client(fake.url) as server:
        calls = [asyncio.ensure_future(exchange(server)) for _ in range(5)]
        await fake.called(5)
        await fake.stop()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [ConnectionLost] * 5
        with pytest.raises(ConnectionLost, match="failed to connect"):
            await exchange(server)

        fake.script = echo
        await fake.start()
        while True:
            with contextlib.suppress(ConnectionLost):
                assert (await exchange(server)).status == 200
                break


async def test_a_server_that_says_unavailable_is_not_lost() -> None:
    """Its connection stays, and so does its answer."""
    reply = Reply(code=Code.UNAVAILABLE, text="busy")
    async with fake_grpc_server(lambda call: reply) as fake, client(fake.url) as server:
        for _ in range(20):
            assert (await exchange(server)).status == 503


async def test_a_server_that_ends_its_calls_to_shut_down_is_lost() -> None:
    """grpcio and C++ servers say so before they close the connection."""
    reply = Reply(code=Code.UNAVAILABLE, text="Cancelling all calls")
    async with fake_grpc_server(lambda call: reply) as fake, client(fake.url) as server:
        with pytest.raises(ConnectionLost, match="Cancelling all calls"):
            await exchange(server)


async def test_something_that_speaks_no_grpc_is_lost() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with listener, client(f"grpc://127.0.0.1:{listener.sockets[0].getsockname()[1]}") as server:
        with pytest.raises(ConnectionLost):
            await exchange(server)


# TLS


def certificate_for(name: str, folder: Path) -> tuple[grpc.ServerCredentials, Path]:
    """The server's side of TLS, and the file of the authority that it is from."""
    authority = trustme.CA()
    issued = authority.issue_cert(name)
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    file = folder / f"ca-of-{name}.pem"
    authority.cert_pem.write_to_path(str(file))
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)]), file


async def test_a_server_with_tls_is_trusted_by_its_authority_only(tmp_path: Path) -> None:
    tls, ca = certificate_for("127.0.0.1", tmp_path)
    _, other = certificate_for("other.example", tmp_path)
    async with fake_grpc_server(echo, tls=tls) as fake:
        async with client(fake.url, ca=ca) as server:
            assert (await exchange(server, b"secret")).body == b"secret"
            assert await server.check() is None
        for stranger in (other, None):
            async with client(fake.url, ca=stranger) as server:
                with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                    await exchange(server)


# Health


def serving(message: bytes) -> Any:
    return lambda call: ok(message)


def fails(code: Code) -> Any:
    return lambda call: Reply(code=code, text="no")


@pytest.mark.parametrize(
    ("checks", "fault", "asked"),
    [
        ({HEALTH: serving(b"\x08\x01"), READY: serving(b"")}, None, [HEALTH]),
        ({HEALTH: serving(b"\x08\x02")}, f"{HEALTH} says that it is not ready", [HEALTH]),
        ({READY: serving(b"\x08\x01")}, None, [HEALTH, READY]),
        ({READY: serving(b"")}, f"{READY} says that it is not ready", [HEALTH, READY]),
        ({HEALTH: fails(Code.NOT_FOUND), READY: fails(Code.UNAUTHENTICATED)}, None, [HEALTH, READY]),
        ({}, None, [HEALTH, READY]),
        ({HEALTH: fails(Code.INTERNAL)}, f"{HEALTH} returned INTERNAL: no", [HEALTH]),
        ({HEALTH: fails(Code.UNAVAILABLE)}, f"{HEALTH} returned UNAVAILABLE: no", [HEALTH]),
    ],
)
async def test_health_is_what_the_first_check_says(
    checks: dict[str, Any], fault: str | None, asked: list[str]
) -> None:
    async with fake_grpc_server(echo) as fake, client(fake.url) as server:
        fake.checks = checks
        assert await server.check() == fault
        assert fake.checked == asked
        assert fake.calls == []


async def test_a_server_that_is_not_there_is_not_healthy() -> None:
    fake = FakeGrpcServer(echo)
    await fake.start()
    await fake.stop()
    async with client(fake.url) as server:
        assert "Connection refused" in (await server.check() or "")
