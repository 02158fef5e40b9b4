"""Which servers get calls, how many, and what happens to slots; on virtual time."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.gateway.backends.model_servers.servers_stage import Stage, VirtualServers
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.model_servers.http_server import http_servers
from uncork_gateway.backends.model_servers.server import read_addresses
from uncork_gateway.protocols.wire import Content

pytestmark = pytest.mark.virtual_time


async def ok(host: str, path: str) -> httpx.Response:
    return httpx.Response(200, content=host.encode())


def least_loaded(on: Stage) -> str | None:
    server = on.servers.least_loaded()
    return None if server is None else str(server.url)


async def test_the_least_loaded_server_gets_the_call() -> None:
    """Of equally loaded servers, the least recently used one."""

    async def slow(host: str, path: str) -> httpx.Response:
        await asyncio.sleep(float(path[1:]))
        return httpx.Response(200)

    servers = VirtualServers(slow)
    async with servers.stage("a", "b", "c", concurrency=2) as on:
        slots = await on.slots.number(6)
        await asyncio.gather(*(on.call(slot, target=b"/1") for slot in slots[:2]))
        calls = [asyncio.ensure_future(on.call(slots[0], target=b"/9"))]  # c, used never
        await turns()
        calls += [asyncio.ensure_future(on.call(slots[at], target=b"/1")) for at in (1, 2)]
        await asyncio.sleep(2)  # c runs one still
        calls += [asyncio.ensure_future(on.call(slots[at], target=b"/9")) for at in (1, 2, 3, 4, 5)]
        await asyncio.gather(*calls)
    assert [host for host, _ in servers.calls] == [*"ab", *"cab", *"ab", *"cab"]


async def test_requests_without_a_slot_get_the_least_loaded_server() -> None:
    """Even when all servers are full; none if none is healthy."""
    servers = VirtualServers(ok)
    async with servers.stage("a", "b", health_interval_s=1) as on:
        assert least_loaded(on) is None
        first, second = await on.slots.number(2)
        assert [least_loaded(on) for _ in range(3)] == ["http://a", "http://b", "http://a"]
        on.servers.take(first)
        assert [least_loaded(on) for _ in range(2)] == ["http://a"] * 2
        on.servers.take(second)
        assert [least_loaded(on) for _ in range(2)] == ["http://b", "http://a"]
        servers.ill = {"a"}
        await asyncio.sleep(1.5)
        assert least_loaded(on) == "http://b"
        on.servers.give_back(first)
        on.servers.give_back(second)


async def test_a_call_under_way_outlives_the_illness_of_its_server() -> None:
    """Its slot is taken back when it ends; healthy servers keep their slots."""
    ends = asyncio.Event()

    async def held(host: str, path: str) -> httpx.Response:
        if host == "a":
            await ends.wait()
        return httpx.Response(200, content=host.encode())

    servers = VirtualServers(held)
    async with servers.stage("a", "b", health_interval_s=1) as on:
        first, second = await on.slots.number(2)
        call = asyncio.ensure_future(on.call(first))
        await turns()
        servers.ill = {"a"}
        await asyncio.sleep(2)
        assert on.slots.out == [first, second]
        for _ in range(2):
            assert (await on.call(second)).body == b"b"
            await turns()
        ends.set()
        assert (await call).body == b"a"
        await turns()
        assert len(on.slots.out) == 1
        assert (await on.call(on.slots.out[0])).body == b"b"


async def test_a_batch_moves_on_when_its_server_falls_ill_between_two_calls() -> None:
    """To another server with room; without one, the batch is lost."""
    resting: set[str] = set()

    async def script(host: str, path: str) -> httpx.Response:
        return httpx.Response(503 if host in resting else 200, headers={"retry-after": "9"})

    servers = VirtualServers(script)
    async with servers.stage("a", "b", health_interval_s=100) as on:
        slot, _ = await on.slots.number(2)
        on.servers.take(slot)
        resting |= {"a"}
        for status in (503, 200):
            response = await on.servers.call(slot, b"/", Content(b""))
            assert response.status == status
        assert on.slots.out == [slot]
        resting |= {"b"}
        assert (await on.servers.call(slot, b"/", Content(b""))).status == 503
        with pytest.raises(WorkerLost, match=r"no server is available; http://a: returned 503.*http://b: "):
            await on.servers.call(slot, b"/", Content(b""))
        on.servers.give_back(slot)
        assert [server.running for server in on.servers.all] == [0, 0]
    assert [host for host, _ in servers.calls] == ["a", "b", "b"]


async def test_a_slot_that_was_dropped_cannot_be_given_back() -> None:
    async with VirtualServers(ok).stage("a") as on:
        (slot,) = await on.slots.number(1)
        on.servers.take(slot)
        on.servers.drop(slot)
        on.slots.out.remove(slot)
        on.servers.give_back(slot)
        on.servers.drop(slot)
        await turns()
        assert len(on.slots.out) == 1
        assert on.slots.out != [slot]
        assert [server.running for server in on.servers.all] == [0]


async def test_a_server_may_run_more_than_a_lower_concurrency() -> None:
    async with VirtualServers(ok).stage("a", "b", concurrency=2) as on:
        busy = (await on.slots.number(4))[:3]
        for slot in busy:
            on.servers.take(slot)
        on.servers.change(on.servers.all, concurrency=1, timeout_s=60.0, idempotent=True)
        assert sorted(on.slots.out) == sorted(busy)
        for slot in busy:
            on.servers.give_back(slot)
        await turns()
        assert len(on.slots.out) == 2


async def test_a_batch_that_has_begun_ends_on_its_server_after_a_change() -> None:
    """Also if its call has not: the other servers may have no room. Then its slot gets no other batch."""
    async with VirtualServers(ok).stage("a", "b") as on:
        first, second = await on.slots.number(2)
        for slot in (first, second):
            on.servers.take(slot)
        on.servers.change(on.servers.all[1:], concurrency=1, timeout_s=60.0, idempotent=True)
        for slot in (first, second):
            assert (await on.servers.call(slot, b"/", Content(b""))).status == 200
            on.servers.give_back(slot)
            assert on.slots.out == [second]


async def test_new_connections_to_a_server_replace_the_former_ones_at_once() -> None:
    """Although another new server is not healthy: a server gets no more calls than the concurrency allows."""
    servers = VirtualServers(ok)
    async with servers.stage("a", "b", health_interval_s=1) as on:
        servers.ill = {"b"}
        for limit in (2, 3):
            new = http_servers(
                read_addresses(["http://a", "http://b"]),
                concurrency=limit,
                health_path="/health",
                transport=servers._transport,
            )
            on.servers.change(new, concurrency=limit, timeout_s=60.0, idempotent=True)
            await asyncio.sleep(2)
            assert len(on.slots.out) == limit


def _step() -> st.SearchStrategy[tuple[str, int]]:
    return st.tuples(
        st.sampled_from(["take", "give_back", "drop", "ill", "well", "wait", "change"]), st.integers(0, 5)
    )


@at_most(60)
@given(steps=st.lists(_step(), max_size=40), concurrency=st.integers(1, 3))
async def test_idle_slots_are_free_capacity(steps: list[tuple[str, int]], concurrency: int) -> None:
    """After any sequence of events; no server ever exceeds the highest concurrency so far."""
    servers = VirtualServers(ok)
    async with servers.stage("a", "b", concurrency=concurrency, health_interval_s=0.5) as on:
        busy: list[int] = []
        limit = most = concurrency
        for what, which in steps:
            idle = [slot for slot in on.slots.out if slot not in busy]
            if what == "take" and idle:
                busy.append(idle[which % len(idle)])
                on.servers.take(busy[-1])
            elif what == "give_back" and busy:
                on.servers.give_back(busy.pop(which % len(busy)))
            elif what == "drop" and busy:
                slot = busy.pop(which % len(busy))
                on.servers.drop(slot)
                on.slots.out.remove(slot)
            elif what in ("ill", "well"):
                (servers.ill.add if what == "ill" else servers.ill.discard)("ab"[which % 2])
            elif what == "wait":
                await asyncio.sleep(which)
            elif what == "change":
                limit = 1 + which % 3
                most = max(most, limit)
                on.servers.change(on.servers.all, concurrency=limit, timeout_s=60.0, idempotent=True)
            await turns()
            every = on.servers.all
            free = sum(max(0, limit - server.running) for server in every if server.healthy)
            assert len(on.slots.out) - len(busy) == free
            assert all(0 <= server.running <= most for server in every)
            assert sum(server.running for server in every) == len(busy)
        for slot in busy:
            on.servers.give_back(slot)
