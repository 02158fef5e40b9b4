"""When a server counts as unhealthy, for how long, and when it is checked; on virtual time."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.gateway.backends.model_servers.servers_stage import VirtualServers, stage
from tests.gateway.running import turns
from uncork_dispatcher import BatchTimedOut, WorkerLost

pytestmark = pytest.mark.virtual_time


async def ok(host: str, path: str) -> httpx.Response:
    return httpx.Response(200, content=host.encode())


async def test_a_server_that_says_it_is_ill_gets_nothing_until_it_is_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Checks become rarer while it is unhealthy, down to one every five seconds."""
    servers = VirtualServers(ok)
    async with servers.stage("a", "b", health_interval_s=10) as on:
        await on.slots.number(2)
        servers.ill = {"a"}
        (slot,) = await on.slots.number(1)
        for _ in range(3):
            assert (await on.call(slot)).body == b"b"
        await asyncio.sleep(25)
        servers.ill = set()
        await on.slots.number(2)

    checks = [at for host, at in servers.checks if host == "a"]
    assert checks == [0, 10, 10, 10.1, 10.3, 10.7, 11.5, 13.1, 16.3, 21.3, 26.3, 31.3, 36.3]
    assert [at for host, at in servers.checks if host == "b"] == [0, 10, 20, 30]
    assert caplog.messages == ["http://a is unhealthy and receives no requests: GET /health returned 500"]


async def test_a_check_that_gets_no_answer_finds_a_server_ill() -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(1e9)
        raise AssertionError

    async with stage("http://a", health_path="/", transport=lambda *_: httpx.MockTransport(never)) as on:
        await asyncio.sleep(5.001)
        (server,) = on.servers.all
        assert (server.healthy, server.fault) == (False, "TimeoutError")


async def test_a_server_that_breaks_every_call_is_left_alone_longer_each_time() -> None:
    """Although it passes its checks; an answered call resets the pause."""
    # Each call is made twice: the first time the connection may have been closed while it was idle.
    broken = True

    async def script(host: str, path: str) -> httpx.Response:
        if broken:
            raise httpx.ReadError("")
        return httpx.Response(200)

    servers = VirtualServers(script)
    async with servers.stage("a", health_interval_s=1000) as on:
        for _ in range(4):
            with pytest.raises(WorkerLost):
                await on.call((await on.slots.number(1))[0])
        broken = False
        await on.call((await on.slots.number(1))[0])
        await turns()
        broken = True
        for _ in range(2):
            with pytest.raises(WorkerLost):
                await on.call((await on.slots.number(1))[0])
        await on.slots.number(1)
    assert [at for _, at in servers.calls] == [0, 0, 0, 0, 0.1, 0.1, 0.3, 0.3, 0.7, 0.7, 0.7, 0.7, 0.7]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "back_at"),
    [("7", 7), ("3600", 30), ("Fri, 31 Dec 9999 23:59:59 GMT", 30), ("0", 0), ("soon", 0), (None, 0)],
)
async def test_a_server_that_asks_for_rest_gets_it(
    status: int, retry_after: str | None, back_at: float
) -> None:
    """Its answer is relayed; the other servers get the calls meanwhile."""

    async def overloaded(host: str, path: str) -> httpx.Response:
        if host == "b":
            return httpx.Response(200)
        return httpx.Response(status, headers={"retry-after": retry_after} if retry_after else {})

    servers = VirtualServers(overloaded)
    async with servers.stage("a", "b", health_interval_s=2) as on:
        slots = await on.slots.number(2)
        assert (await on.call(slots[0])).status == status
        await turns()
        assert len(on.slots.out) == (1 if back_at else 2)
        if back_at:
            for _ in range(3):
                assert (await on.call(on.slots.out[0])).status == 200
            await asyncio.sleep(back_at - 0.001)
            assert len(on.slots.out) == 1
        await on.slots.number(2)
        await turns()
        assert asyncio.get_running_loop().time() == pytest.approx(back_at)


async def test_the_longest_rest_counts() -> None:
    answered_at = {"/2": 0, "/9": 0.5, "/1": 1}

    async def overloaded(host: str, path: str) -> httpx.Response:
        await asyncio.sleep(answered_at[path])
        return httpx.Response(503, headers={"retry-after": path[1:]})

    async with VirtualServers(overloaded).stage("a", concurrency=3) as on:
        slots = await on.slots.number(3)
        calls = zip(slots, answered_at, strict=True)
        await asyncio.gather(*(on.call(slot, target=path.encode()) for slot, path in calls))
        await on.slots.number(0)
        await on.slots.number(3)
        assert asyncio.get_running_loop().time() == pytest.approx(9.5)


async def test_what_is_heard_during_a_check_counts_more_than_the_check() -> None:
    """It was healthy when the check began, and has answered 503 since."""

    async def overloaded(host: str, path: str) -> httpx.Response:
        return httpx.Response(503, headers={"retry-after": "9"})

    servers = VirtualServers(overloaded)
    servers.check_s = 1
    async with servers.stage("a", health_interval_s=10) as on:
        (slot,) = await on.slots.number(1)
        await asyncio.sleep(10.5)
        await on.call(slot)
        await on.slots.number(0)
        await on.slots.number(1)
        assert asyncio.get_running_loop().time() == pytest.approx(1 + 10.5 + 9 + 1)
    assert [at for _, at in servers.checks] == [0, 11, 20.5]


@pytest.mark.parametrize("kind", [httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_connection_that_was_closed_while_idle_costs_nothing(
    kind: type[httpx.TransportError], idempotent: bool
) -> None:
    """Many servers silently close a connection after a 500: the call is repeated if it is idempotent."""
    faults = [kind("")]

    async def script(host: str, path: str) -> httpx.Response:
        if faults:
            raise faults.pop()
        return httpx.Response(200)

    servers = VirtualServers(script)
    async with servers.stage("a", health_interval_s=1000, idempotent=idempotent) as on:
        [slot] = await on.slots.number(1)
        if idempotent:
            assert (await on.call(slot)).status == 200
            assert on.slots.out == [slot]
        else:
            with pytest.raises(WorkerLost):
                await on.call(slot)
        assert len(servers.calls) == 1 + idempotent


async def test_calls_that_break_together_are_one_failure() -> None:
    async def breaks(host: str, path: str) -> httpx.Response:
        await asyncio.sleep(1)
        raise httpx.ReadError("")

    async with VirtualServers(breaks).stage("a", concurrency=4) as on:
        calls = [on.call(slot) for slot in await on.slots.number(4)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [WorkerLost] * 4
        await on.slots.number(4)
        assert asyncio.get_running_loop().time() == 2


@pytest.mark.parametrize("status", [200, 500, 502])
async def test_retry_after_means_nothing_elsewhere(status: int) -> None:
    async def script(host: str, path: str) -> httpx.Response:
        return httpx.Response(status, headers={"retry-after": "7"})

    async with VirtualServers(script).stage("a") as on:
        await on.call((await on.slots.number(1))[0])
        await turns()
        assert [server.healthy for server in on.servers.all] == [True]


async def test_a_silent_server_is_given_up_but_is_not_ill() -> None:
    """Only this batch may be slow."""

    async def silent(host: str, path: str) -> httpx.Response:
        raise httpx.ReadTimeout("")

    async with VirtualServers(silent).stage("a", timeout_s=9) as on:
        with pytest.raises(BatchTimedOut, match="http://a sent no data for 9 s"):
            await on.call((await on.slots.number(1))[0])
        await on.slots.number(1)
