"""The model servers behind the proxy: which are healthy, what they run, and calls to them.

A *slot* is the right to have one call outstanding; the dispatcher knows it as the number of a worker. A
server has ``concurrency`` places while it is healthy. There are as many idle slots as there are free
places, so a slot is not bound to a server: a batch gets the least loaded one when it starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

import httpx

from uncork_dispatcher import BatchTimedOut, WorkerLost
from uncork_gateway.backends.http_server import (
    HttpServer,
    MakeTransport,
    Response,
    describe,
    make_transport,
    read_addresses,
    retry_after_s,
)
from uncork_gateway.headers import Header
from uncork_gateway.protocols.wire import Content

log = logging.getLogger("uncork.gateway")

# How long a server is left alone before it is checked, by how often it has failed since it last answered.
_BACKOFF_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
# Many servers (uvicorn is one) close a connection that was idle for 5 s: ours must not be used just then.
KEEP_ALIVE_S = 4.0
_OVERLOADED = (429, 503)


class ServerStats(NamedTuple):
    """How a server is: how many calls it runs, and what is wrong with it if it is not healthy."""

    url: str
    healthy: bool
    running: int
    fault: str


class CallSlot(NamedTuple):
    """A call that a server runs under a slot, or could run; or that it is not healthy, and its fault."""

    url: str
    state: Literal["idle", "busy", "lost"]
    number: int | None = None
    fault: str = ""


class SlotListener(Protocol):
    """Told which slots there are; a number is never used twice."""

    def worker_ready(self, worker: int) -> None:
        """One call more may be outstanding."""

    def worker_lost(self, worker: int) -> None:
        """A slot that nothing runs on is taken back."""


class HttpServers:
    """Servers that all serve the same; one that is ill gets no calls. Make it inside a running event loop.

    Args:
        urls: ``http://host:port`` of each.
        concurrency: most calls that one server runs at a time.
        timeout_s: seconds without a byte from a server after which a call is given up.
        listener: told which slots there are; an :class:`AsyncDispatcher`, for example.
        health_path: path and query that a healthy server answers with 2xx; None: it takes connections.
        health_interval_s: seconds between two checks of a healthy server.
        transport: makes what carries the calls to a server.

    Raises:
        ValueError: if an argument makes no sense.
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
        transport: MakeTransport = make_transport,
    ) -> None:
        _check_positive(concurrency=concurrency, timeout_s=timeout_s, health_interval_s=health_interval_s)
        if health_path is not None and not health_path.startswith("/"):
            raise ValueError(f"the health path must begin with /, got {health_path!r}")
        # One more than calls: a check must not wait for them.
        limits = httpx.Limits(
            max_connections=concurrency + 1,
            max_keepalive_connections=concurrency + 1,
            keepalive_expiry=KEEP_ALIVE_S,
        )
        self._servers = [
            HttpServer(url=url, transport=transport(url, limits)) for url in read_addresses(urls)
        ]
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
        """Begin to check the servers; slots come as they prove healthy."""
        self._watchers = [self._loop.create_task(self._watch(server)) for server in self._servers]

    async def close(self) -> None:
        """Take all slots back and close all connections. Calls must have ended."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for server in self._servers:
            server.healthy, server.fault = False, "the gateway is shutting down"
        self._settle()
        for server in self._servers:
            await server.transport.aclose()

    def stats(self) -> list[ServerStats]:
        """How each server is."""
        return [ServerStats(str(one.url), one.healthy, one.running, one.fault) for one in self._servers]

    def slots(self) -> list[CallSlot]:
        """Every call that runs or could, and every server that is not healthy; server by server."""
        slots = []
        for server in self._servers:
            url = str(server.url)
            running = [slot for slot, at in self._busy.items() if at is server]
            slots += [CallSlot(url, "busy", slot) for slot in running]
            if server.healthy:
                slots += [CallSlot(url, "idle")] * (self._concurrency - server.running)
            else:
                slots.append(CallSlot(url, "lost", fault=server.fault))
        return slots

    def least_loaded(self) -> httpx.URL | None:
        """The healthy server that runs the fewest calls, for what needs no slot; None if all are ill.

        It counts as used by that.
        """
        healthy = [one for one in self._servers if one.healthy]
        server = min(healthy, key=_load, default=None)
        if server is None:
            return None
        server.last_used = next(self._uses)
        return server.url

    # Slots

    def take(self, slot: int) -> None:
        """A batch starts on an idle slot."""
        del self._idle[slot]
        self._busy[slot] = self._enter()

    def give_back(self, slot: int) -> None:
        """Its batch has ended: the slot is idle. One that was dropped is passed over.

        The dispatcher must be told of the end in the same turn of the loop.
        """
        if self._leave(slot):
            self._idle[slot] = None

    def drop(self, slot: int) -> None:
        """The dispatcher has given a slot up, or is about to; it gets another when there is a place."""
        self._leave(slot)

    def _enter(self) -> HttpServer | None:
        """A place at the least loaded server, of equal ones the one that was used longest ago."""
        free = [one for one in self._servers if one.healthy and one.running < self._concurrency]
        server = min(free, key=_load, default=None)
        if server is not None:
            server.running += 1
            server.last_used = next(self._uses)
        return server

    def _leave(self, slot: int) -> bool:
        """Free its place. Returns False if nothing ran on the slot."""
        if slot not in self._busy:
            return False
        server = self._busy.pop(slot)
        if server is not None:
            server.running -= 1
        # Not at once: until the dispatcher knows of the end, it takes a slot lost for a batch lost.
        self._loop.call_soon(self._settle)
        return True

    def _settle(self) -> None:
        """Have as many idle slots as there are free places."""
        places = sum(self._concurrency - server.running for server in self._servers if server.healthy)
        while len(self._idle) > places:
            slot, _ = self._idle.popitem()
            self._listener.worker_lost(slot)
        while len(self._idle) < places:
            slot = next(self._numbers)
            self._idle[slot] = None
            self._listener.worker_ready(slot)

    # Calls

    async def call(
        self,
        slot: int,
        target: bytes,
        content: Content,
        headers: Iterable[Header] = (),
        *,
        idempotent: bool = True,
    ) -> Response:
        """POST ``content`` to path and query ``target``, with ``headers`` beside those of the content.

        What is ``idempotent`` is sent once more if the connection breaks before the answer begins. A server
        that answers 429 or 503 gets no calls for as long as its Retry-After says, at most 30 s.

        Raises:
            WorkerLost: no server could be reached, or the connection broke before the whole answer was there.
            BatchTimedOut: the server was silent for too long.
        """
        server = self._server(slot)
        whole = Content(content.body, (*content.headers, *headers))
        try:
            response = await server.exchange(
                "POST", target, whole, silence_s=self._timeout_s, idempotent=idempotent
            )
        except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout) as error:
            fault = describe(error)
            if server.healthy:
                self._failed(server, fault)
            raise WorkerLost(f"{server.url}: {fault}") from error
        except httpx.TimeoutException as error:
            raise BatchTimedOut(f"{server.url} was silent for {self._timeout_s:g} s") from error
        server.faults = 0
        if response.status in _OVERLOADED:
            self._let_rest(server, response)
        return response

    def _server(self, slot: int) -> HttpServer:
        """Where the batch of a slot runs; elsewhere if that server has fallen ill since its last call."""
        server = self._busy[slot]
        if server is None or not server.healthy:
            if server is not None:
                server.running -= 1
            server = self._busy[slot] = self._enter()
            self._settle()
        if server is None:
            faults = "; ".join(f"{one.url}: {one.fault}" for one in self._servers if not one.healthy)
            raise WorkerLost(f"no server is free; {faults}")
        return server

    # Health

    async def _watch(self, server: HttpServer) -> None:
        """Check a server when it has rested, at intervals while it is well, and when there is news of it."""
        while True:
            server.news.clear()
            await asyncio.sleep(server.rests_until - self._loop.time())
            fault = await server.check(self._health_path)
            if server.news.is_set():
                continue
            if fault is not None:
                self._failed(server, fault)
                continue
            self._is_well(server)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._health_interval_s):
                    await server.news.wait()

    def _is_well(self, server: HttpServer) -> None:
        if not server.healthy:
            log.info("%s is healthy", server.url)
            server.healthy, server.fault = True, ""
            self._settle()

    def _failed(self, server: HttpServer, fault: str) -> None:
        rest_s = _BACKOFF_S[min(server.faults, len(_BACKOFF_S) - 1)]
        server.faults += 1
        self._is_ill(server, fault, rest_s)

    def _let_rest(self, server: HttpServer, response: Response) -> None:
        rest_s = retry_after_s(response.headers, now=datetime.now(UTC))
        if rest_s > 0:
            self._is_ill(server, f"it answers {response.status}, try again in {rest_s:.0f} s", rest_s)

    def _is_ill(self, server: HttpServer, fault: str, rest_s: float) -> None:
        if fault != server.fault:
            log.warning("%s gets no calls: %s", server.url, fault)
        server.healthy, server.fault = False, fault
        server.rests_until = max(server.rests_until, self._loop.time() + rest_s)
        server.news.set()
        self._settle()


def _load(server: HttpServer) -> tuple[int, int]:
    return server.running, server.last_used


def _check_positive(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
