"""Calls to servers on real sockets, and invalid arguments."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.gateway.backends.model_servers.fake_server import Call, FakeServer, Reply, fake_server
from tests.gateway.backends.model_servers.servers_stage import Slots, stage
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.model_servers.http_server import http_servers
from uncork_gateway.backends.model_servers.server import ServerResponse, read_addresses
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.protocols.wire import Content


def echo(call: Call) -> Reply:
    return Reply(call.body)


async def test_a_call_says_what_it_is_told_to_say() -> None:
    """Target and body are unchanged, with only these headers; so is the answer."""
    reply = Reply(b"\x00\xff", 207, ((b"X-Model", b"m"), (b"connection", b"X-Hop"), (b"x-hop", b"1")))
    async with fake_server(lambda call: reply) as server, stage(server.url) as on:
        (slot,) = await on.slots.number(1)
        on.servers.take(slot)
        headers = (
            (b"Content-Type", b"text/plain"),
            (b"accept-encoding", b"gzip"),
            (b"host", b"elsewhere"),
            (b"content-length", b"99"),
            (b"connection", b"close"),
            (b"x-more", b"2"),
        )
        target = b"/v1/a%2fb/%7Em|\"?q='%20&x=1"
        response = await on.servers.call(slot, target, Content(b"body", headers))
        on.servers.give_back(slot)

        assert response == ServerResponse(207, ((b"x-model", b"m"),), b"\x00\xff")
        (call,) = server.calls
        assert (call.method, call.target, call.body) == (b"POST", target, b"body")
        assert sorted(call.headers) == [
            (b"accept-encoding", b"identity"),
            (b"content-length", b"4"),
            (b"content-type", b"text/plain"),
            (b"host", server.url.removeprefix("http://").encode()),
            (b"x-more", b"2"),
        ]


async def test_connections_are_kept_and_nothing_else_is() -> None:
    """Successive calls share one; redirects are answers, and cookies are not sent back."""
    reply = Reply(b"", 302, ((b"location", b"/elsewhere"), (b"set-cookie", b"a=1")))
    async with fake_server(lambda call: reply) as server, stage(server.url) as on:
        for _ in range(3):
            (slot,) = await on.slots.number(1)
            assert (await on.call(slot, b"x")).status == 302
            await turns()
        assert [(call.connection, call.target, call.header(b"cookie")) for call in server.calls] == [
            (1, b"/", None)
        ] * 3


async def test_each_place_has_a_connection_of_its_own() -> None:
    async with fake_server(lambda call: None) as server, stage(server.url, concurrency=2) as on:
        calls = [asyncio.ensure_future(on.call(slot)) for slot in await on.slots.number(2)]
        while len(server.calls) < 2:
            server.called.clear()
            await server.called.wait()
        assert sorted(call.connection for call in server.calls) == [1, 2]
        assert [one.running for one in on.servers.all] == [2]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await server.hung_up.wait()


@pytest.mark.parametrize("reply", [Reply(missing=5), Reply(b"half", missing=4)])
async def test_a_connection_that_breaks_is_a_worker_lost(reply: Reply) -> None:
    """Even in the middle of an answer. The server is checked at once and is healthy."""
    async with fake_server(lambda call: reply) as server, stage(server.url) as on:
        (slot,) = await on.slots.number(1)
        with pytest.raises(WorkerLost, match=f"{server.url}: RemoteProtocolError"):
            await on.call(slot)

        (another,) = await on.slots.number(1)
        assert another != slot
        server.script = echo
        assert (await on.call(another, b"x")).body == b"x"


async def test_a_server_that_is_gone_is_a_worker_lost() -> None:
    async with fake_server(echo) as server, stage(server.url, concurrency=3) as on:
        first = await on.slots.number(3)
        await server.stop()
        with pytest.raises(WorkerLost, match="ConnectError"):
            await on.call(first[0])
        assert on.slots.out == []
        assert "ConnectError" in on.servers.all[0].fault

        await server.start()
        assert not set(first) & set(await on.slots.number(3))


async def test_a_server_that_is_not_there_yet_gives_no_slots(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer(echo)
    await server.start()
    await server.stop()
    async with stage(server.url) as on:
        while not on.servers.all[0].fault.startswith("ConnectionRefusedError"):
            await turns(1)
        assert on.slots.out == []
        await server.start()
        await on.slots.number(1)
    await server.stop()
    assert (
        len(
            [
                line
                for line in caplog.messages
                if "is unhealthy and receives no requests: ConnectionRefusedError" in line
            ]
        )
        == 1
    )


async def test_a_check_does_not_wait_for_calls() -> None:
    def script(call: Call) -> Reply | None:
        return Reply() if call.method == b"GET" else None

    async with (
        fake_server(script) as server,
        stage(server.url, health_path="/health?full=1", health_interval_s=0.001) as on,
    ):
        call = asyncio.ensure_future(on.call((await on.slots.number(1))[0]))
        while [call.method for call in server.calls][-1:] != [b"POST"]:
            await turns(1)
        server.called.clear()
        await server.called.wait()
        assert (server.calls[-1].method, server.calls[-1].target) == (b"GET", b"/health?full=1")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency": 0}, "concurrency must be above 0, got 0"),
        ({"timeout_s": 0}, "timeout_s must be above 0, got 0"),
        ({"timeout_s": float("nan")}, "timeout_s must be above 0, got nan"),
        ({"health_interval_s": -1}, "health_interval_s must be above 0, got -1"),
    ],
)
async def test_arguments_that_make_no_sense_are_told(wrong: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"concurrency": 1, "timeout_s": 1.0, **wrong}
    with pytest.raises(ValueError, match=message):
        Servers([], listener=Slots(), **arguments)


def test_a_health_path_begins_with_a_slash() -> None:
    with pytest.raises(ValueError, match="health_path must begin with /, got 'health'"):
        http_servers(read_addresses(["http://a"]), concurrency=1, health_path="health")


async def test_they_can_be_closed_before_they_are_started(caplog: pytest.LogCaptureFixture) -> None:
    """As when something else fails at start."""
    made = http_servers(read_addresses(["http://a"]), concurrency=1)
    await Servers(made, concurrency=1, timeout_s=1.0, listener=Slots()).close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
