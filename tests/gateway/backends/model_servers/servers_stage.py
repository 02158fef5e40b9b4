"""Servers behind the proxy, with a listener that records the slots; on sockets or on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

from tests.loops import other_tasks
from uncork_gateway.backends.model_servers.http_server import MakeTransport, http_servers, make_transport
from uncork_gateway.backends.model_servers.server import ServerResponse, read_addresses
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.protocols.wire import Content

_OF_FAKE_SERVERS = ("FakeServer", "_accept_connection")


class Slots:
    """The current slots, in the order in which they were added."""

    def __init__(self) -> None:
        self.out: list[int] = []
        self.lost: list[int] = []
        self._changed = asyncio.Event()

    def worker_ready(self, worker: int) -> None:
        """Add a slot, whose number must be new."""
        assert worker not in self.out + self.lost
        self.out.append(worker)
        self._changed.set()

    def worker_lost(self, worker: int) -> None:
        self.out.remove(worker)
        self.lost.append(worker)
        self._changed.set()

    worker_retired = worker_lost

    def health_changed(self) -> None:
        """Do nothing: slots are what counts here."""

    async def number(self, count: int) -> list[int]:
        """Wait until there are this many slots."""
        while len(self.out) != count:
            self._changed.clear()
            await self._changed.wait()
        return list(self.out)


class Stage:
    """Servers and slots; the stage acts as the dispatcher."""

    def __init__(self, servers: Servers[Any], slots: Slots) -> None:
        self.servers = servers
        self.slots = slots

    async def call(self, slot: int, body: bytes = b"", target: bytes = b"/") -> ServerResponse:
        """Run a batch of one call on a slot; a failure loses both."""
        self.servers.take(slot)
        try:
            return await self.servers.call(slot, target, Content(body))
        except BaseException:
            self.servers.drop(slot)
            self.slots.out.remove(slot)
            raise
        finally:
            self.servers.give_back(slot)


def assert_no_task_left() -> None:
    """Fail if anything runs except the caller and fake servers."""
    left = [repr(task) for task in other_tasks() if not any(name in repr(task) for name in _OF_FAKE_SERVERS)]
    assert not left, left


@contextlib.asynccontextmanager
async def stage(
    *urls: str,
    concurrency: int = 1,
    health_path: str | None = None,
    transport: MakeTransport = make_transport,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Servers with health checks."""
    slots = Slots()
    arguments: dict[str, Any] = {"timeout_s": 60.0, **options}
    made = http_servers(
        read_addresses(urls), concurrency=concurrency, health_path=health_path, transport=transport
    )
    servers = Servers(made, concurrency=concurrency, listener=slots, **arguments)
    servers.start()
    try:
        yield Stage(servers, slots)
    finally:
        await servers.close()
        assert slots.out == []
        assert_no_task_left()


class VirtualServers:
    """Servers without sockets, for virtual time: ``http://a``, ``http://b``, … They record their requests.

    ``answer`` gets the host and the path. Checks ask for ``/health``; hosts in ``ill`` answer them with 500.
    """

    def __init__(self, answer: Callable[[str, str], Awaitable[httpx.Response]]) -> None:
        self.ill: set[str] = set()
        self.check_s = 0.0
        self.checks: list[tuple[str, float]] = []
        self.calls: list[tuple[str, float]] = []
        self._answer = answer

    def stage(self, *hosts: str, **options: Any) -> contextlib.AbstractAsyncContextManager[Stage]:
        """Servers with health checks."""
        urls = [f"http://{host}" for host in hosts]
        return stage(*urls, health_path="/health", transport=self._transport, **options)

    def _transport(self, url: httpx.URL, limits: httpx.Limits) -> httpx.AsyncBaseTransport:
        return httpx.MockTransport(self._handle)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        now = round(asyncio.get_running_loop().time(), 6)
        host = request.url.host
        if request.extensions["target"] == b"/health":
            self.checks.append((host, now))
            await asyncio.sleep(self.check_s)
            return httpx.Response(500 if host in self.ill else 204)
        self.calls.append((host, now))
        return await self._answer(host, request.extensions["target"].decode())
