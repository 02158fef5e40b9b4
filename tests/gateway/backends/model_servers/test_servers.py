"""Calls to servers on real sockets, and invalid arguments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.backends.model_servers.fake_server import Call, Reply, fake_server
from tests.gateway.backends.model_servers.servers_stage import Slots, stage
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.model_servers.http_server import http_servers
from uncork_gateway.backends.model_servers.server import are_grpc, read_addresses
from uncork_gateway.backends.model_servers.servers import Servers


def echo(call: Call) -> Reply:
    return Reply(call.body)


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


def test_addresses_are_read_once_each() -> None:
    """In the given order; a slash at the end makes no difference."""
    addresses = read_addresses(["http://b:8080", "http://a", "http://b:8080/", "https://[::1]:8443"])
    assert [str(url) for url in addresses] == ["http://b:8080", "http://a", "https://[::1]:8443"]
    assert not are_grpc(addresses)


def test_servers_for_grpc_have_a_port() -> None:
    urls = ["grpc://a:8001", "grpcs://[::1]:443/"]
    addresses = read_addresses(urls)
    assert [str(address) for address in addresses] == ["grpc://a:8001", "grpcs://[::1]:443"]
    assert [(address.host, address.port) for address in addresses] == [("a", 8001), ("::1", 443)]
    assert are_grpc(addresses)
    with pytest.raises(ValueError, match=r"'grpc://a' is not .* a port is missing; gRPC has none by default"):
        read_addresses(["grpc://a"])


@pytest.mark.parametrize("urls", [["http://a", "grpc://b:1"], ["grpcs://b:1", "https://a"]])
def test_http_and_grpc_cannot_be_mixed(urls: list[str]) -> None:
    with pytest.raises(
        ValueError, match=f"all servers must speak the same protocol, .*got {', '.join(urls)}"
    ):
        read_addresses(urls)
