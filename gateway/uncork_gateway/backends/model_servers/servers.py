"""The model servers behind the proxy: health, load, and calls.

The dispatcher sees a slot as a worker. A healthy server has room for ``concurrency`` calls, and the number of
idle slots equals the free room. A slot is not bound to a server: each batch goes to the least loaded server
when it starts.
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from uncork_dispatcher import BatchTimedOut, SettingError, WorkerLost
from uncork_gateway.backends.model_servers.server import (
    ConnectionLost,
    NoAnswerInTime,
    Server,
    ServerResponse,
)
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.errors import Unavailable
from uncork_gateway.protocols.wire import Content

log = logging.getLogger("uncork.gateway")

# Pause before the next check, by the number of failures since the server last answered.
_BACKOFF_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)

ServerT = TypeVar("ServerT", bound=Server)


class SlotListener(Protocol):
    """Notified of slots, whose numbers are never reused, and of the servers' health."""

    def worker_ready(self, worker: int) -> None:
        """A slot was added."""

    def worker_lost(self, worker: int) -> None:
        """An idle slot was removed, or the server did not respond to the slot's batch."""

    def worker_retired(self, worker: int) -> None:
        """A slot is removed whose batch is about to end."""

    def health_changed(self) -> None:
        """A server has become healthy or unhealthy. Its slots may still be busy."""


class Servers(Generic[ServerT]):
    """Equal model servers, and their slots. Create it inside a running event loop.

    Args:
        concurrency: the most calls that a server runs at a time.
        timeout_s: the seconds without a byte from a server after which a call fails.
        health_interval_s: seconds between two checks of a healthy server.
        idempotent: True if a request may be sent twice.

    Attributes:
        all: the servers, healthy or not.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self,
        servers: Sequence[ServerT],
        *,
        concurrency: int,
        timeout_s: float,
        listener: SlotListener,
        health_interval_s: float = 5.0,
        idempotent: bool = True,
    ) -> None:
        _check_positive(concurrency=concurrency, timeout_s=timeout_s, health_interval_s=health_interval_s)
        self.all = list(servers)
        self.idempotent = idempotent
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._listener = listener
        self._health_interval_s = health_interval_s
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._uses = itertools.count(1)
        self._idle: dict[int, None] = {}
        self._busy: dict[int, ServerT | None] = {}
        self._leaving: list[ServerT] = []
        self._awaited: list[ServerT] = []
        self._former: list[ServerT] = []
        self._retiring: set[asyncio.Task[None]] = set()
        self._watchers: dict[int, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start the health checks, which add slots for healthy servers."""
        for server in self.all:
            if id(server) not in self._watchers:
                self._watchers[id(server)] = self._loop.create_task(self._watch(server))

    def change(
        self, servers: Sequence[ServerT], *, concurrency: int, timeout_s: float, idempotent: bool
    ) -> None:
        """Use these servers; former ones leave when all new ones, or the one at their address, are healthy.

        Calls that run end where they are.

        Raises:
            ValueError: if an argument is invalid; nothing has changed then.
        """
        _check_positive(concurrency=concurrency, timeout_s=timeout_s)
        self._concurrency, self._timeout_s, self.idempotent = concurrency, timeout_s, idempotent
        # Those that an earlier change has named may not be healthy yet.
        self._awaited = [one for one in servers if one not in self.all or one in self._awaited]
        self._leaving = [server for server in self.all if server not in servers]
        self.all = [*servers, *self._leaving]
        self.start()
        self._leave_former()
        self._settle()

    def _leave_former(self) -> None:
        replaced = {server.url for server in self.all if server.healthy and server not in self._leaving}
        gone = [server for server in self._leaving if not self._awaited or server.url in replaced]
        for server in gone:
            self._watchers.pop(id(server)).cancel()
            self.all.remove(server)
            self._leaving.remove(server)
        self._former += gone
        self._listener.health_changed()

    async def close(self) -> None:
        """Remove all slots and close all connections. Calls must have ended."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
        for server in self.all:
            server.healthy, server.fault = False, "the gateway is shutting down"
        self._settle()
        for server in [*self.all, *self._former]:
            await server.close()
        await asyncio.gather(*self._retiring)

    def slots(self) -> list[BackendSlot]:
        """Return each call that runs or could run, and each server that is not healthy, sorted by server."""
        index, slots = itertools.count(), []
        for server in self.all:
            running = [slot for slot, at in self._busy.items() if at is server]
            slots += [BackendSlot(next(index), "busy", slot, url=server.url) for slot in running]
            if server.healthy:
                idle = range(self._concurrency - server.running)
                slots += [BackendSlot(next(index), "idle", url=server.url) for _ in idle]
            else:
                slots.append(BackendSlot(next(index), "lost", url=server.url, fault=server.fault))
        return slots

    def least_loaded(self, *, below: float = math.inf) -> ServerT | None:
        """Return the healthy server with the fewest calls, if fewer than ``below``; mark it as used.

        Of equally loaded servers, return the least recently used. Requests that pass through take no slot and
        need no limit.
        """
        able = (server for server in self.all if server.healthy and server.running < below)
        server = min(able, key=lambda one: (one.running, one.last_used), default=None)
        if server is not None:
            server.last_used = next(self._uses)
        return server

    def for_one_request(self) -> ServerT:
        """Return the server for a request that passes through the proxy.

        Raises:
            Unavailable: if no server is healthy.
        """
        server = self.least_loaded()
        if server is None:
            raise Unavailable("no server is healthy", reason="no_worker")
        return server

    # Slots

    def take(self, slot: int) -> None:
        """Assign a server to an idle slot, on which a batch is starting."""
        del self._idle[slot]
        self._busy[slot] = self._enter()

    def give_back(self, slot: int) -> None:
        """Make a slot idle after its batch, unless it was dropped, or there is no room for another batch.

        The dispatcher must learn of the batch's end in the same turn of the event loop, but after this.
        """
        if not self._leave(slot):
            return
        if len(self._idle) < self._room:
            self._idle[slot] = None
        else:
            self._listener.worker_retired(slot)

    def drop(self, slot: int) -> None:
        """Remove a slot that the dispatcher abandons; a new slot is added when there is room."""
        self._leave(slot)

    def lose(self, slot: int) -> None:
        """Remove a slot whose server did not respond; its batch is lost."""
        self._leave(slot)
        self._listener.worker_lost(slot)

    def _enter(self) -> ServerT | None:
        """Take room on the least loaded server; return None if no server has room."""
        server = self.least_loaded(below=self._concurrency)
        if server is not None:
            server.running += 1
        return server

    def _leave(self, slot: int) -> bool:
        """Free the room that a slot's call takes; return False if the slot runs none."""
        if slot not in self._busy:
            return False
        server = self._busy.pop(slot)
        if server is not None:
            server.running -= 1
        # Later: until the dispatcher knows of the end, a lost slot would mean a lost batch.
        self._loop.call_soon(self._settle)
        return True

    @property
    def _room(self) -> int:
        # A server may run more than ``concurrency`` calls after a change.
        return sum(max(0, self._concurrency - server.running) for server in self.all if server.healthy)

    def _settle(self) -> None:
        """Add or remove idle slots until their number equals the free room."""
        room = self._room
        while len(self._idle) > room:
            slot, _ = self._idle.popitem()
            self._listener.worker_lost(slot)
        while len(self._idle) < room:
            slot = next(self._numbers)
            self._idle[slot] = None
            self._listener.worker_ready(slot)
        self._retire_former()

    def _retire_former(self) -> None:
        """Retire the former servers whose calls have ended."""
        for server in [server for server in self._former if not server.running]:
            self._former.remove(server)
            retiring = self._loop.create_task(server.retire())
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)

    # Calls

    async def call(
        self, slot: int, target: bytes, content: Content, *, time_left_s: float = math.inf
    ) -> ServerResponse:
        """Send ``content`` to ``target`` (path and query, or a gRPC method's path).

        ``time_left_s`` is the clients' remaining timeout. A server that responds that it is overloaded, and
        when to retry, gets no calls until then, for at most 30 s.

        Raises:
            WorkerLost: if no server could be reached, or the connection broke before the end of the response.
            BatchTimedOut: if the server was silent for too long.
        """
        server = self._server(slot)
        try:
            response = await server.exchange(
                target,
                content,
                silence_s=self._timeout_s,
                time_left_s=time_left_s,
                idempotent=self.idempotent,
            )
        except ConnectionLost as error:
            if server.healthy:
                self._failed(server, str(error))
            raise WorkerLost(f"{server.url}: {error}") from error
        except NoAnswerInTime as error:
            raise BatchTimedOut(f"{server.url} sent no data for {self._timeout_s:g} s") from error
        server.faults = 0
        rest_s = server.asked_rest_s(response)
        if rest_s > 0:
            fault = f"returned {response.status}; retrying in {rest_s:.0f} s"
            self._set_unhealthy(server, fault, rest_s)
        return response

    def _server(self, slot: int) -> ServerT:
        """Return a slot's server, or another if that server has become unhealthy since its last call."""
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

    async def _watch(self, server: ServerT) -> None:
        """Check a server forever: at intervals and on news while healthy, after pauses while not."""
        while True:
            server.news.clear()
            await asyncio.sleep(server.rests_until - self._loop.time())
            fault = await server.check()
            if server.news.is_set():
                continue
            if fault is not None:
                self._failed(server, fault)
                continue
            if not server.healthy:
                log.info("%s is healthy", server.url)
                server.healthy, server.fault = True, ""
                if server in self._awaited:
                    self._awaited.remove(server)
                    self._leave_former()
                self._listener.health_changed()
                self._settle()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._health_interval_s):
                    await server.news.wait()

    def _failed(self, server: ServerT, fault: str) -> None:
        rest_s = _BACKOFF_S[min(server.faults, len(_BACKOFF_S) - 1)]
        server.faults += 1
        self._set_unhealthy(server, fault, rest_s)

    def _set_unhealthy(self, server: ServerT, fault: str, rest_s: float) -> None:
        if fault != server.fault:
            log.warning("%s is unhealthy and receives no requests: %s", server.url, fault)
        server.healthy, server.fault = False, fault
        server.rests_until = max(server.rests_until, self._loop.time() + rest_s)
        server.news.set()
        self._listener.health_changed()
        self._settle()


def _check_positive(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value > 0:
            raise SettingError(name, says=f" must be above 0, got {value}")
