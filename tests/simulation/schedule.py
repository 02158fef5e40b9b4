"""One schedule: a gateway or proxy, its clients, and what must hold whatever happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import uvicorn

from tests.gateway.client import no_app
from tests.simulation.clients import Client
from tests.simulation.draws import Draws
from tests.simulation.grpc_clients import GrpcClient
from tests.simulation.network import End, Network, Peer, SimulatedLoop
from tests.simulation.requests import OF_MODELS, Asked
from tests.simulation.running import RunningService
from tests.simulation.workers import Row
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_workers.supervision.supervisor import ReplacementFailed
from uncork_workers.wire.schema import ApiDescription

# After the last client has left: longer than any timeout.
_SETTLE_S = 60.0
# Longer than a connection waits for its client to close it.
_LINGER_S = 10.0


class Owner(Protocol):
    """Who has asked for a row."""

    @property
    def has_left(self) -> bool:
        """True if the gateway has known for some time that it has gone."""


class Schedule(ABC):
    """Everything in one schedule. Create it inside the loop.

    Attributes:
        front: the gateway or proxy; ``settings`` are its own.
        violations: what did not hold.
        statuses: how many responses had each status.
        owners: who has asked for a row, by its number, if only one has.
        is_stopping: True once the gateway is shutting down.
        has_failed: True once a worker or the network has failed.
        forms: the protocols of models that clients speak over HTTP.
        relays_native: True if native requests pass through; then only the servers keep their timeouts.
    """

    forms = OF_MODELS
    relays_native = False
    _bursts = 0.1
    front: Any
    settings: Any

    def __init__(self, draws: Draws, loop: SimulatedLoop) -> None:
        self.draws, self.loop, self.network = draws, loop, Network(loop)
        self.violations: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.owners: dict[int, Owner] = {}
        self.is_stopping = self._is_over = self.has_failed = False
        self._is_faulty, self._is_odd = draws.happens("faults", 0.6), draws.happens("oddities", 0.6)
        self._numbers = itertools.count(10)
        self._choices = draws.random("gateway")

    def _serve(self, app: Any) -> None:
        self._http = uvicorn.Config(app, lifespan="off", log_config=None, interface="asgi3")
        self._http.load()
        self._server = uvicorn.Server(self._http).server_state

    def violated(self, what: str) -> None:
        self.violations.append(f"{self.loop.now():.4f} s: {what}")

    def fails(self, name: str, probability: float) -> bool:
        """Decide whether a worker or the network fails; neither does after the last client."""
        happens = self._is_faulty and not self._is_over and self.draws.happens(name, probability)
        self.has_failed |= happens
        return happens

    def is_odd(self, name: str, probability: float) -> bool:
        """Decide whether a client does something odd."""
        return self._is_odd and not self._is_over and self.draws.happens(name, probability)

    # What clients do

    def connect(self, name: str, client: Peer, choices: random.Random, *, grpc: bool = False) -> End:
        protocol = self.front.front_end.protocol(
            config=self._http, server_state=self._server, app_state={}, _loop=self.loop
        )
        return self.network.connect(name, protocol, client, choices)

    @abstractmethod
    def target(self, choices: random.Random) -> tuple[Asked, ApiDescription]:
        """Return the service and the API that a request is for."""

    def row(self, owner: Owner, choices: random.Random, *, repeats: bool) -> Row:
        """Return a new row, or one that others ask for too."""
        if repeats and choices.random() < 0.7:
            return {"n": choices.randint(1, 3), "g": choices.choice("ab")}
        number = next(self._numbers)
        if not repeats:
            self.owners[number] = owner
        return {"n": number, "g": choices.choice("ab")}

    # From start to end

    async def run(self) -> None:
        await self._start()
        is_burst = self.draws.happens("burst", self._bursts)
        names = [f"c{number}" for number in range(30 if is_burst else 10)]
        clients = [self._client(name).run(0.5 if is_burst else None) for name in names if self._has(name)]
        await asyncio.gather(*clients, *self._events())
        self._is_over = True
        await asyncio.sleep(_SETTLE_S)
        self._check_nothing_left()
        if not self.is_stopping:
            await self._probe()
        await self._stop()

    def _has(self, client: str) -> bool:
        return self.draws.happens(client, 0.6)

    @abstractmethod
    async def _start(self) -> None:
        """Return when clients may ask."""

    @abstractmethod
    def _client(self, name: str) -> Client | GrpcClient: ...

    @abstractmethod
    async def _probe(self) -> None:
        """Ask each API once; nothing fails any more."""

    @abstractmethod
    def _events(self) -> list[Awaitable[None]]: ...

    async def _at_some_time(self, event: Callable[[], Awaitable[None]], name: str = "") -> None:
        await asyncio.sleep(self.draws.random(name or event.__name__).uniform(0, 2))
        if not self.is_stopping:
            with contextlib.suppress(ReplacementFailed):
                await event()

    async def _drain_early(self) -> None:
        self.is_stopping = True
        front_end = self.front.front_end
        draining = asyncio.ensure_future(front_end.drain())
        if self.draws.happens("gives_up", 0.5):
            await asyncio.sleep(0.05)
            front_end.give_up()
        await draining
        if left := front_end.unanswered():
            self.violated(f"{left} requests are left after the drain")

    async def _stop(self) -> None:
        self.is_stopping = True
        await self.front.front_end.drain()
        await self._close()
        await asyncio.sleep(_SETTLE_S)
        if left := [*asyncio.all_tasks() - {asyncio.current_task()}, *self.loop.timers()]:
            self.violated(f"after the end are left: {left}")

    async def _close(self) -> None:
        await self.front.close()

    def _check_nothing_left(self) -> None:
        """Nobody asks any more, so nothing waits, runs, or is held."""
        listener = self.front.front_end.listener
        left = self._left()
        left["connections"] += listener.open.accepted + listener.open.refused + len(self._server.connections)
        left["tasks"] = len(self._server.tasks)
        left["bytes of bodies"] = listener.pool.used_bytes
        self.violations += [f"{count} {what} left" for what, count in left.items() if count]

    @abstractmethod
    def _left(self) -> Counter[str]:
        """Return the counts of what is still held."""


class GatewaySchedule(Schedule):
    """A gateway and its workers.

    Attributes:
        services: all that there have been.
        cuts_calls_off: True if gRPC connections of some age end before their calls.
    """

    def __init__(self, draws: Draws, loop: SimulatedLoop) -> None:
        super().__init__(draws, loop)
        choices = self._choices
        self.settings = GatewaySettings(
            max_queue_rows=choices.choice([8, 20_000]),
            fair_by=b"x-tenant" if draws.happens("fair", 0.2) else None,
            max_body_bytes=choices.choice([1000, 64 * 2**20]),
            grpc=True,
        )
        self.front = self.gateway = Gateway(self.settings)
        self._serve(no_app)
        front_end = self.gateway.front_end
        assert front_end.open_call is not None
        limits = GrpcLimits(max_message_bytes=self.settings.max_body_bytes)
        self.cuts_calls_off = draws.happens("cuts_calls_off", 0.1)
        if self.cuts_calls_off or draws.happens("old_connections", 0.15):
            limits.max_connection_age_s = 1.0
            limits.max_connection_age_grace_s = 0.5 if self.cuts_calls_off else math.inf
        self._grpc = GrpcListener(front_end.open_call, front_end.listener, limits=limits)
        self._has_second = draws.happens("two", 0.3)
        self.services = [RunningService(self, "sim" if self._has_second else None)]

    def connect(self, name: str, client: Peer, choices: random.Random, *, grpc: bool = False) -> End:
        if grpc:
            return self.network.connect(name, self._grpc.protocol(), client, choices)
        return super().connect(name, client, choices)

    def target(self, choices: random.Random) -> tuple[RunningService, ApiDescription]:
        service = choices.choice([service for service in self.services if service.is_asked])
        return service, choices.choice(service.description.apis)

    async def _start(self) -> None:
        await self.services[0].start()

    def _client(self, name: str) -> Client | GrpcClient:
        return (GrpcClient if self.draws.happens(f"{name}.grpc", 0.3) else Client)(self, name)

    async def _probe(self) -> None:
        for service in self.services:
            versions = [one for one in self.services if one.label == service.label]
            has_changed = any(one.has_changed or one.is_leaving for one in versions)
            for api in () if has_changed else service.served._apis.in_force.values():
                await Client(self, f"probe of {service.model_of(api)}", only=(service, api)).run()

    def _events(self) -> list[Awaitable[None]]:
        first = self.services[0]
        events = {
            first.reload: 0.2,
            first.recycle: 0.1,
            first.resize: 0.1,
            first.change_settings: 0.2,
            self._drain_early: 0.1,
        }
        if self._has_second:
            events[self._have_second] = 1.0
        return [
            self._at_some_time(event)
            for event, each in events.items()
            if self.draws.happens(event.__name__, each)
        ]

    async def _have_second(self) -> None:
        """Add a service or a version, and perhaps remove it, while requests run."""
        name = "sim@2" if self.draws.happens("version", 0.5) else "two"
        service = RunningService(self, name, is_first=False)
        self.services.append(service)
        await service.start()
        if self.draws.happens("is_removed", 0.7):
            await self._at_some_time(service.remove)

    async def _drain_early(self) -> None:
        self._grpc.drain()
        await super()._drain_early()
        await asyncio.sleep(_LINGER_S)
        if idle := [each for each in self._grpc._connections if not each.session.streams]:
            self.violated(f"{idle} have no calls and stay open after the drain")

    async def _stop(self) -> None:
        self._grpc.drain()
        await super()._stop()

    async def _close(self) -> None:
        self._grpc.close()
        await super()._close()
        for service in self.services:
            await service.stop()

    def _left(self) -> Counter[str]:
        left: Counter[str] = Counter(connections=self._grpc.connections)
        for service in self.services:
            left.update(service.left())
        return left
