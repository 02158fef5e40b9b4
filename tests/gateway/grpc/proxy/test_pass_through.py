"""Calls that pass through to a gRPC server, message by message."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.backends.model_servers.servers_stage import Slots
from tests.gateway.grpc.fake_stream import FakeConnection, FakeStream
from tests.gateway.grpc.proxy.fake_grpc_server import FakeGrpcServer, Reply, fake_grpc_server
from tests.gateway.running import turns
from uncork_gateway.backends.model_servers.server import read_addresses
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.errors import BadGateway, BadRequest, TimedOut, Unavailable
from uncork_gateway.grpc.interfaces import Call as ClientCall
from uncork_gateway.grpc.interfaces import CallHead
from uncork_gateway.grpc.proxy.pass_through import GrpcPassThrough
from uncork_gateway.grpc.proxy.server import GrpcServer, ServerStream, grpc_servers
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.interfaces import BodyPool

PATH = b"/some.Service/Method"
MIB = 2**20


class Stage:
    """One server, behind what passes calls through."""

    def __init__(self, fake: FakeGrpcServer, servers: Servers[GrpcServer], timeout_s: float) -> None:
        self.fake = fake
        self.servers = servers
        self.listener = ListenerContext(pool=BodyPool.for_bodies(MIB))
        self.passing = GrpcPassThrough(servers, self.listener, timeout_s=timeout_s)

    def open(
        self, *metadata: tuple[bytes, bytes], timeout_s: float = math.inf
    ) -> tuple[FakeStream, ClientCall]:
        stream = FakeStream(connection=FakeConnection(pool=self.listener.pool))
        return stream, self.passing.open(stream, CallHead(PATH, timeout_s=timeout_s, metadata=metadata))


@contextlib.asynccontextmanager
async def stage(fake: FakeGrpcServer, timeout_s: float = 60) -> AsyncIterator[Stage]:
    slots = Slots()
    servers = Servers(
        grpc_servers(read_addresses([fake.url])), concurrency=1, timeout_s=timeout_s, listener=slots
    )
    servers.start()
    await slots.number(1)
    on = Stage(fake, servers, timeout_s)
    try:
        yield on
    finally:
        await on.passing.close()
        await servers.close()


async def test_a_stream_passes_in_both_directions() -> None:
    """With metadata, in order, and its end is the server's."""
    reply = Reply(
        messages=(b"a", b"", b"c"),
        metadata=(("x-first", "1"),),
        code=Code.ABORTED,
        text="half \u2014 done",
        trailers=(("x-last-bin", b"\xff"),),
    )
    async with fake_grpc_server(lambda call: reply) as fake, stage(fake) as on:
        stream, call = on.open((b"authorization", b"me"), (b"te", b"trailers"))
        for message in (b"1", b"", b"3"):
            call.message_received(message)
        call.end_received()

        assert await stream.end() == Code.ABORTED
        assert (stream.metadata, stream.messages) == (((b"x-first", b"1"),), [b"a", b"", b"c"])
        assert (stream.text, stream.trailers) == ("half \u2014 done", ((b"x-last-bin", b"/w"),))
        (received,) = fake.calls
        assert (received.path, received.messages) == (PATH.decode(), [b"1", b"", b"3"])
        assert received.metadata == (("authorization", "me"), ("x-request-id", "the-call"))
        assert received.time_left_s is None


async def test_the_clients_deadline_is_the_servers() -> None:
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        while not fake.calls:  # on a busy machine, the deadline may pass before
            stream, call = on.open(timeout_s=0.2)
            call.end_received()
            assert await stream.end() == Code.DEADLINE_EXCEEDED
        assert 0 <= (fake.calls[0].time_left_s or 0) <= 0.25
        await fake.cancelled.wait()


@pytest.mark.parametrize("how", ["leaves", "breaks a rule"])
async def test_a_client_that_ends_early_cancels_the_call(how: str) -> None:
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        stream, call = on.open()
        await fake.called(1)
        if how == "leaves":
            call.cancelled()
        else:
            call.reject(BadRequest("broken"))
        await fake.cancelled.wait()
        assert (stream.code, stream.text) == (
            (None, "") if how == "leaves" else (Code.INVALID_ARGUMENT, "broken")
        )


async def test_a_call_that_ends_in_the_turn_that_opens_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client may send its head and its reset together; the task of the call then never begins."""
    opened: list[ServerStream] = []
    begin = GrpcServer.stream

    def recorded(*args: Any, **options: Any) -> ServerStream:
        opened.append(begin(*args, **options))
        return opened[-1]

    monkeypatch.setattr(GrpcServer, "stream", recorded)
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        _, call = on.open()
        call.cancelled()
        await turns()
        assert ([each.cancelled() for each in opened], on.passing._calls) == ([True], set())


async def test_a_server_that_reads_nothing_pauses_the_client() -> None:
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        fake.reads = asyncio.Event()
        stream, call = on.open()
        sent = 0
        while not stream.is_paused:
            call.message_received(b"x" * 100_000)
            sent += 1
            await fake.called(1)
            await turns()
            assert sent < 500
        fake.reads.set()
        while bool(stream.is_paused):  # the server's reading changes it
            await turns(1)
        call.end_received()
        while len(fake.calls[0].messages) < sent:
            await fake.news()
        assert fake.calls[0].messages == [b"x" * 100_000] * sent


async def test_empty_messages_pause_the_client_too() -> None:
    """They take no bytes, but memory."""
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        stream, call = on.open()
        sent = 0
        while not stream.is_paused:
            call.message_received(b"")
            sent += 1
            assert sent < 5000
        assert on.listener.pool.used_bytes > 256 * 1024
        call.end_received()
        while not fake.calls or len(fake.calls[0].messages) < sent:
            await fake.news()
        await turns()
        assert (bool(stream.is_paused), on.listener.pool.used_bytes) == (False, 0)


async def test_what_waits_for_a_server_is_counted() -> None:
    """Messages that a server does not read fill the pool, and then no other large one is accepted."""
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        fake.reads = asyncio.Event()
        stream, call = on.open()
        other, late = on.open()
        pool = on.listener.pool
        while not stream.is_paused:
            call.message_received(b"x" * 100_000)
            await fake.called(1)
            await turns()
        assert pool.used_bytes > 200_000
        pool.used_bytes += pool.max_bytes
        late.message_received(b"x" * 1000)
        assert not other.is_finished
        late.message_received(b"x" * 100_000)
        assert other.code is Code.UNAVAILABLE
        call.cancelled()
        await turns()
        assert pool.used_bytes == pool.max_bytes


async def test_a_client_that_reads_nothing_pauses_the_server() -> None:
    reply = Reply(messages=(b"x" * MIB,) * 50)
    async with fake_grpc_server(lambda call: reply) as fake, stage(fake) as on:
        stream, call = on.open()
        stream.unsent_bytes = 5 * MIB
        call.end_received()
        await stream.next()
        await turns(200)
        assert len(stream.messages) == 1
        assert fake.unwritten > 0
        stream.read_all()
        assert await stream.end() == Code.OK
        assert len(stream.messages) == 50


async def test_metadata_that_cannot_be_sent_ends_the_call() -> None:
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        stream, _ = on.open((b"x-name", b"\xff"))
        assert (stream.code, fake.calls) == (Code.INVALID_ARGUMENT, [])


async def test_a_drain_refuses_new_calls_and_the_end_ends_all() -> None:
    async with fake_grpc_server(lambda call: None) as fake, stage(fake) as on:
        stream, _ = on.open()
        await fake.called(1)
        on.listener.closing = True
        late, _ = on.open()
        assert (late.code, late.text) == (Code.UNAVAILABLE, "the server is shutting down")
        assert not stream.is_finished
        await on.passing.close()
        assert (stream.code, stream.text) == (Code.UNAVAILABLE, "the server is shutting down")
        await fake.cancelled.wait()


# Unary calls with a complete message


async def test_a_message_without_an_answer_is_an_error() -> None:
    async with fake_grpc_server(lambda call: None) as fake, stage(fake, timeout_s=0.05) as on:
        with pytest.raises(TimedOut, match="the server did not respond before the timeout"):
            await on.passing.relay(PATH, (), b"", time_left_s=math.inf)
        await fake.stop()
        with pytest.raises(BadGateway, match="the server did not respond: "):
            await on.passing.relay(PATH, (), b"", time_left_s=math.inf)
        on.servers.all[0].healthy = False
        with pytest.raises(Unavailable):
            await on.passing.relay(PATH, (), b"", time_left_s=math.inf)
