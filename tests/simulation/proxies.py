"""A schedule of a proxy and the model servers behind it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any

from tests.simulation.clients import Client
from tests.simulation.draws import Draws
from tests.simulation.model_servers import Call, ModelServer
from tests.simulation.network import SimulatedLoop
from tests.simulation.requests import OF_MODELS, Ask
from tests.simulation.schedule import Schedule
from tests.simulation.workers import BAD_ROW, status_of
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings
from uncork_workers.wire.schema import ApiDescription

_FORMS: dict[str, dict[str, Any]] = {"json": {}, "ndarray": {"dtype": "int64", "shape": [4]}}
# A server knows so much later that a call's clients have gone.
_LATE_S = 1.0


class ProxySchedule(Schedule):
    """A proxy and its servers; clients ask its models, as a service with an API for each."""

    relays_native = True
    _bursts = 0.5

    def __init__(self, draws: Draws, loop: SimulatedLoop) -> None:
        super().__init__(draws, loop)
        choices = self._choices
        self.settings = ProxySettings(
            max_queue_rows=choices.choice([8, 20_000]),
            fair_by=b"x-tenant" if draws.happens("fair", 0.2) else None,
            max_body_bytes=choices.choice([1000, 64 * 2**20]),
            dashboard=False,
            max_batch_rows=choices.choice([1, 4, 32]),
            max_hold_s=choices.choice([0.0, 0.05, 0.5]),
            goal_s=choices.choice([None, 0.05, 2.0]),
            timeout_s=choices.choice([1.0, 5.0]),
            policy=choices.choice(["cork", "cork", "fixed:20", "fixed:0:4", "aimd", "none"]),
            concurrency=choices.choice([1, 1, 3]),
            idempotent=not draws.happens("not_idempotent", 0.3),
            health_path="/health" if draws.happens("health_path", 0.5) else None,
        )
        self._apis = [
            ApiDescription(name=f"a{number}", route=f"/a{number}", input={"kind": kind, **_FORMS[kind]})
            for number, kind in enumerate(choices.choices([*_FORMS], k=choices.choice([1, 2])))
        ]
        self.forms = choices.choice([[form] for form in OF_MODELS] + [OF_MODELS])  # few, to share calls
        self._servers = [ModelServer(self, f"10.0.0.{number}") for number in range(1, 5)]
        loop.hosts = {server.host: server.connect for server in self._servers}
        self._used = choices.choice([1, 1, 2, 3])
        self.front = Proxy(self._urls(), self.settings)
        self._serve(self.front.front_end.app)
        self._has_changed = False
        self._begun: Counter[int] = Counter()
        self._faulty: set[int] = set()

    def _urls(self) -> list[str]:
        return [f"http://{server.host}:8000" for server in self._servers[: self._used]]

    # What clients ask

    def target(self, choices: Random) -> tuple[ProxySchedule, ApiDescription]:
        return self, choices.choice(self._apis)

    def model_of(self, api: ApiDescription) -> str:
        return f"m.{api.name}"

    def route_of(self, api: ApiDescription) -> str:
        return api.route

    def has_reshaped(self, api: ApiDescription) -> bool:
        return False

    def explains(self, ask: Ask, status: int, text: str) -> bool:
        """Return whether something that happened explains an error."""
        if status in ask.faults:
            return True
        may_be_of_others = bool(self._faulty) and (self.has_failed or not self.settings.idempotent)
        causes = {
            (status_of(ask.rows), BAD_ROW): status != 200,
            (status, "with the requests of several clients"): self.has_failed or may_be_of_others,
            (status, "busy"): self.has_failed,
            (200, "half a response"): self.has_failed,
            (200, "an unreadable response"): self.has_failed,
            (502, ""): self.has_failed,
            (503, "cannot complete within the latency goal"): True,
            (503, "the queue of this API is full"): self.settings.max_queue_rows < 1000 or self._has_changed,
            (503, "no server is healthy"): self.has_failed,
            (503, "no model server is ready"): self.has_failed,
            (503, "the server is shutting down"): self.is_stopping,
            (504, "timeout"): self.has_failed,
            (504, "expired"): ask.timeout_s is not None,
        }
        return any(holds and status == code and words in text for (code, words), holds in causes.items())

    # What servers get

    def begins(self, server: ModelServer, call: Call, calls: Sequence[Call]) -> None:
        """A server begins a call: it has not too many rows, and does not run again what may not."""
        numbers = [row["n"] for row in call.rows]
        if status_of(call.rows) != 200:
            self._faulty.update(numbers)
        if self.is_shared(call) and len(numbers) > self.settings.max_batch_rows and not self._has_changed:
            self.violated(f"{server.host} got {call}")
        merged = [each for each in calls if each.form != "native"]
        if len(merged) > self.settings.concurrency and not self._has_changed:
            self.violated(f"{server.host} got at a time: {merged}")
        self._begun.update(numbers)
        if not self.settings.idempotent and (again := [each for each in numbers if self._begun[each] > 1]):
            self.violated(f"{server.host} runs {again} again: {call}")

    def is_shared(self, call: Call) -> bool:
        """Return whether a call has rows of several clients."""
        return len({self.owners[row["n"]] for row in call.rows}) > 1

    def ends(self, call: Call) -> None:
        """A server responds on an open connection: somebody waits for it."""
        owners: list[Any] = [self.owners[row["n"]] for row in call.rows]
        left_at = [owner.end.peer.lost_at for owner in owners]
        if all(at is not None and at + _LATE_S < self.loop.now() for at in left_at):
            self.violated(f"no server was told that the clients of {call} left")

    # From start to end

    async def _start(self) -> None:
        self.front.start()
        if self.draws.happens("all_wait", 0.8):
            await self.front.front_end.ready.wait()
        else:
            self.has_failed = True

    def _client(self, name: str) -> Client:
        return Client(self, name)

    async def _probe(self) -> None:
        for api in self._apis:
            await Client(self, f"probe of {api.name}", only=(self, api)).run()

    def _events(self) -> list[Awaitable[None]]:
        events = {self.change: 0.3, self._drain_early: 0.1}
        named = [(event.__name__, event, each) for event, each in events.items()]
        for server in self._servers if self._is_faulty else []:
            named.append((f"{server.host}.trouble", server.has_trouble, 0.3))
        return [
            self._at_some_time(event, name) for name, event, each in named if self.draws.happens(name, each)
        ]

    async def change(self) -> None:
        """Use other servers and settings."""
        choices, self._has_changed = self._choices, True
        self._used = choices.choice([1, 2, 4])
        self.settings = dataclasses.replace(
            self.settings,
            max_batch_rows=choices.choice([1, 5]),
            concurrency=choices.choice([1, 2]),
            timeout_s=choices.choice([1.0, 3.0]),
            max_queue_rows=choices.choice([8, 100]),
        )
        self.front.change(self._urls(), self.settings, renew=choices.random() < 0.3)

    def _left(self) -> Counter[str]:
        core, servers = self.front._batching.dispatcher._core, self.front._servers
        return Counter(
            {
                "requests": len(core.unanswered),
                "running batches": core._slots.running + len(servers._busy),
                "calls": sum(server.running for server in servers.all),
                "pending actions": not core.is_empty,
                "former servers": len(servers._former) + len(servers._leaving),
            }
        )

    async def _stop(self) -> None:
        await super()._stop()
        if left := [end.name for end in self.network.ends if end.lost_at is None]:
            self.violated(f"connections are left: {left}")
