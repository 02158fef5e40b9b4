"""The model servers behind the proxy: health, load, and calls.

The dispatcher sees a slot as a worker. A healthy server has room for ``concurrency`` calls, and there are as
many idle slots as there is free room. A slot is not bound to a server: a batch gets the least loaded one when
it starts.
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import httpx

from uncork_dispatcher import BatchTimedOut, SettingError, WorkerLost
from uncork_gateway.backends.http_server import (
    HttpServer,
    MakeTransport,
    ServerResponse,
    describe,
    make_transport,
    read_addresses,
    retry_after_s,
)
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.headers import Header
from uncork_gateway.protocols.wire import Content

log = logging.getLogger("uncork.gateway")

# Pause before the next check, by the number of failures since the server last answered.
_BACKOFF_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
# Many servers, such as uvicorn, close idle connections after 5 s; ours must be given up before that.
KEEP_ALIVE_S = 4.0
_OVERLOADED = (429, 503)


class SlotListener(Protocol):
    """Notified of slots; a number is never used twice."""

    def worker_ready(self, worker: int) -> None:
        """A slot was added."""

    def worker_lost(self, worker: int) -> None:
        """An idle slot was taken back."""


class HttpServers:
    """Servers that all serve the same models. Create it inside a running event loop.

    Args:
        urls: ``http://host:port`` of each.
        concurrency: most calls that one server runs at a time.
        timeout_s: seconds without a byte from a server after which a call is given up.
        listener: notified of slots.
        health_path: path and query that a healthy server answers with 2xx; None: it accepts connections.
        health_interval_s: seconds between two checks of a healthy server.
        idempotent: whether a request may be sent twice.
        transport: makes the transport to a server.

    Attributes:
        all: the servers, healthy or not, in the order of ``urls``.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        concurrency: int,
        timeout_s: float,
        listener: SlotListener,
        health_path: str | None = None,
        health_interval_s: float = 5.0,
        idempotent: bool = True,
        transport: MakeTransport = make_transport,
    ) -> None:
        _check_positive(concurrency=concurrency, timeout_s=timeout_s, health_interval_s=health_interval_s)
        if health_path is not None and not health_path.startswith("/"):
            raise SettingError("health_path", says=f" must begin with /, got {health_path!r}")
        # One more than calls: a health check must not wait for them.
        limits = httpx.Limits(
            max_connections=concurrency + 1,
            max_keepalive_connections=concurrency + 1,
            keepalive_expiry=KEEP_ALIVE_S,
        )
        self.all = [HttpServer(url=url, transport=transport(url, limits)) for url in read_addresses(urls)]
        self.idempotent = idempotent
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._listener = listener
        self._health_path = health_path
        self._health_interval_s = health_interval_s
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._uses = itertools.count(1)
        self._idle: dict[int, None] = {}
        self._busy: dict[int, HttpServer | None] = {}
        self._watchers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the health checks; slots are added as servers prove healthy."""
        self._watchers = [self._loop.create_task(self._watch(server)) for server in self.all]

    async def close(self) -> None:
        """Take back all slots and close all connections. Calls must have ended."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for server in self.all:
            server.healthy, server.fault = False, "the gateway is shutting down"
        self._settle()
        for server in self.all:
            await server.transport.aclose()

    def slots(self) -> list[BackendSlot]:
        """Return every call that runs or could run, and every server that is not healthy, by server."""
        index, slots = itertools.count(), []
        for server in self.all:
            url = str(server.url)
            running = [slot for slot, at in self._busy.items() if at is server]
            slots += [BackendSlot(next(index), "busy", slot, url=url) for slot in running]
            if server.healthy:
                idle = range(self._concurrency - server.running)
                slots += [BackendSlot(next(index), "idle", url=url) for _ in idle]
            else:
                slots.append(BackendSlot(next(index), "lost", url=url, fault=server.fault))
        return slots

    def least_loaded(self, *, below: float = math.inf) -> HttpServer | None:
        """Return the healthy server with the fewest calls, if fewer than ``below``, and mark it as used.

        Of several, it is the least recently used one. A request that is passed through takes no slot, so it
        needs no limit.
        """
        able = (server for server in self.all if server.healthy and server.running < below)
        server = min(able, key=lambda one: (one.running, one.last_used), default=None)
        if server is not None:
            server.last_used = next(self._uses)
        return server

    # Slots

    def take(self, slot: int) -> None:
        """Assign a server to an idle slot, on which a batch starts."""
        del self._idle[slot]
        self._busy[slot] = self._enter()

    def give_back(self, slot: int) -> None:
        """Make a slot idle after its batch, unless it was dropped.

        The dispatcher must learn of the end in the same turn of the loop.
        """
        if self._leave(slot):
            self._idle[slot] = None

    def drop(self, slot: int) -> None:
        """Remove a slot that the dispatcher gives up; another is added when there is room."""
        self._leave(slot)

    def _enter(self) -> HttpServer | None:
        """Take room on the least loaded server; None if none has any."""
        server = self.least_loaded(below=self._concurrency)
        if server is not None:
            server.running += 1
        return server

    def _leave(self, slot: int) -> bool:
        """Free the slot's room. Return False if nothing ran on it."""
        if slot not in self._busy:
            return False
        server = self._busy.pop(slot)
        if server is not None:
            server.running -= 1
        # Later: until the dispatcher knows of the end, a lost slot would mean a lost batch.
        self._loop.call_soon(self._settle)
        return True

    def _settle(self) -> None:
        """Make the number of idle slots equal to the free room."""
        room = sum(self._concurrency - server.running for server in self.all if server.healthy)
        while len(self._idle) > room:
            slot, _ = self._idle.popitem()
            self._listener.worker_lost(slot)
        while len(self._idle) < room:
            slot = next(self._numbers)
            self._idle[slot] = None
            self._listener.worker_ready(slot)

    # Calls

    async def call(
        self, slot: int, target: bytes, content: Content, headers: Iterable[Header] = ()
    ) -> ServerResponse:
        """POST ``content`` to ``target``, path and query, with ``headers`` added to its own.

        A server that answers 429 or 503 gets no calls during its Retry-After, at most 30 s.

        Raises:
            WorkerLost: no server could be reached, or the connection broke before the answer was complete.
            BatchTimedOut: the server was silent for too long.
        """
        server = self._server(slot)
        whole = Content(content.body, (*content.headers, *headers))
        try:
            response = await server.exchange(
                "POST", target, whole, silence_s=self._timeout_s, idempotent=self.idempotent
            )
        except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout) as error:
            fault = describe(error)
            if server.healthy:
                self._failed(server, fault)
            raise WorkerLost(f"{server.url}: {fault}") from error
        except httpx.TimeoutException as error:
            raise BatchTimedOut(f"{server.url} sent no data for {self._timeout_s:g} s") from error
        server.faults = 0
        if response.status in _OVERLOADED:
            rest_s = retry_after_s(response.headers, now=datetime.now(UTC))
            if rest_s > 0:
                fault = f"returned {response.status}; retrying in {rest_s:.0f} s"
                self._set_unhealthy(server, fault, rest_s)
        return response

    def _server(self, slot: int) -> HttpServer:
        """Return the server of a slot; another one if that has become unhealthy since its last call."""
        server = self._busy[slot]
        if server is None or not server.healthy:
            if server is not None:
                server.running -= 1
            server = self._busy[slot] = self._enter()
            self._settle()
        if server is None:
            faults = "; ".join(f"{one.url}: {one.fault}" for one in self.all if not one.healthy)
            raise WorkerLost(f"no server is available; {faults}")
        return server

    # Health

    async def _watch(self, server: HttpServer) -> None:
        """Check a server at intervals while it is healthy, on news, and after a pause when it failed."""
        while True:
            server.news.clear()
            await asyncio.sleep(server.rests_until - self._loop.time())
            fault = await server.check(self._health_path)
            if server.news.is_set():
                continue
            if fault is not None:
                self._failed(server, fault)
                continue
            if not server.healthy:
                log.info("%s is healthy", server.url)
                server.healthy, server.fault = True, ""
                self._settle()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._health_interval_s):
                    await server.news.wait()

    def _failed(self, server: HttpServer, fault: str) -> None:
        rest_s = _BACKOFF_S[min(server.faults, len(_BACKOFF_S) - 1)]
        server.faults += 1
        self._set_unhealthy(server, fault, rest_s)

    def _set_unhealthy(self, server: HttpServer, fault: str, rest_s: float) -> None:
        if fault != server.fault:
            log.warning("%s is unhealthy and receives no requests: %s", server.url, fault)
        server.healthy, server.fault = False, fault
        server.rests_until = max(server.rests_until, self._loop.time() + rest_s)
        server.news.set()
        self._settle()


def _check_positive(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value > 0:
            raise SettingError(name, says=f" must be above 0, got {value}")
