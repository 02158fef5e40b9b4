"""One schedule: a gateway, its workers and clients, and what must hold whatever happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import math
import random
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

import uncork_gateway.batching
import uncork_gateway.gateway
import uncork_gateway.headers
from tests.gateway.client import no_app
from tests.loops import CheckedLoop
from tests.simulation.clients import Ask, Client
from tests.simulation.draws import Draws
from tests.simulation.network import End, Network, SimulatedLoop, Wedged
from tests.simulation.services import changed_service, some_service
from tests.simulation.workers import SOCKET, STANDBY_SOCKET, Processes, Row, Worker, status_of
from uncork_dispatcher import AsyncDispatcher
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.backends.worker_connection import Done, Executed
from uncork_gateway.requests.coalescing import Coalescing
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor, WorkerExit
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.overrides import for_all_apis

# After the last client has left: longer than any timeout.
_SETTLE_S = 60.0


class Schedule:
    """Everything in one schedule. Create it inside the loop.

    Attributes:
        violations: what did not hold.
        statuses: how many responses had each status.
        owners: the client that has asked for a row, by its number, if only one has.
        is_stopping: True once the gateway is shutting down.
    """

    def __init__(self, draws: Draws, loop: SimulatedLoop) -> None:
        self.draws, self.loop, self.network = draws, loop, Network(loop)
        self.violations: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.owners: dict[int, Client] = {}
        self.is_stopping = self._is_over = self._has_changed = self._has_failed = self._has_new_limits = False
        self._is_faulty, self._is_odd = draws.happens("faults", 0.6), draws.happens("oddities", 0.6)
        self._numbers = itertools.count(10)
        self._begun: Counter[int] = Counter()
        self._cancelled: defaultdict[int, set[int]] = defaultdict(set)
        self._choices = draws.random("schedule")
        self.service = some_service(draws)
        self.processes = Processes(self)
        reserved = sum(api.settings.workers or 0 for api in self.service.apis)
        self._workers = reserved + self._choices.choice([1, 1, 2, 3])
        self._settings = GatewaySettings(
            workers=self._workers + 2,
            max_queue_rows=self._choices.choice([8, 20_000]),
            fair_by=b"x-tenant" if draws.happens("fair", 0.2) else None,
            max_body_bytes=self._choices.choice([1000, 64 * 2**20]),
        )
        self.gateway = Gateway(self._settings)
        self._http = uvicorn.Config(no_app, lifespan="off", log_config=None, interface="asgi3")
        self._http.load()
        self._server = uvicorn.Server(self._http).server_state
        self.served = self.gateway.add(self._settings, self._actions())
        self._supervisor = self._supervise()
        self._execute_in_pool, self._cancel_in_pool = self.served.pool.execute, self.served.pool.cancel
        self.served.pool.execute = self._execute  # type: ignore[method-assign]
        self.served.pool.cancel = self._cancel  # type: ignore[method-assign]

    def violated(self, what: str) -> None:
        self.violations.append(f"{self.loop.now():.4f} s: {what}")

    def fails(self, name: str, probability: float) -> bool:
        """Decide whether a worker or the network fails; neither does after the last client."""
        happens = self._is_faulty and not self._is_over and self.draws.happens(name, probability)
        self._has_failed |= happens
        return happens

    def is_odd(self, name: str, probability: float) -> bool:
        """Decide whether a client does something odd."""
        return self._is_odd and not self._is_over and self.draws.happens(name, probability)

    # What clients do and get

    def connect(self, client: Client, choices: random.Random) -> End:
        protocol = self.gateway.front_end.protocol(
            config=self._http, server_state=self._server, app_state={}, _loop=self.loop
        )
        return self.network.connect(client.name, protocol, client, choices)

    def row(self, client: Client, choices: random.Random, *, repeats: bool) -> Row:
        """Return a new row, or one that others ask for too."""
        if repeats and choices.random() < 0.7:
            return {"n": choices.randint(1, 3), "g": choices.choice("ab")}
        number = next(self._numbers)
        if not repeats:
            self.owners[number] = client
        return {"n": number, "g": choices.choice("ab")}

    def allowed(self, ask: Ask, *, is_slow: bool) -> set[int]:
        """Return the statuses, besides 200, that the response to a request may have."""
        allowed = {408} if is_slow else set()
        if self._has_changed:
            allowed.add(404)  # its API may be gone
        if ask.is_bad:
            return allowed | {400}
        allowed |= {503, status_of(ask.rows)}
        if self._has_failed:
            allowed |= {502, 504}
        return allowed | {504} if ask.timeout_s else allowed

    # What workers get: the pool's methods

    def _execute(
        self, worker: int, batch: Batch, bodies: Sequence[bytes], done: Done, *, on_piece: Any = None
    ) -> None:
        requests: list[list[Row]] = [json.loads(b"[%b]" % body) for body in bodies]
        self._check(batch, requests)
        if gone := self._gone(requests):
            self.violated(f"batch {batch.batch} has requests {gone} of clients that have left: {requests}")

        def checked(executed: Executed) -> None:
            if untold := self._gone(requests) - self._cancelled[batch.batch]:
                self.violated(f"no worker was told that {untold} of batch {batch.batch} left: {requests}")
            done(executed)

        self._execute_in_pool(worker, batch, bodies, checked, on_piece=on_piece)

    def _cancel(self, worker: int, batch: int, requests: Sequence[int]) -> None:
        self._cancelled[batch].update(requests)
        self._cancel_in_pool(worker, batch, requests)

    def _gone(self, requests: Sequence[Sequence[Row]]) -> set[int]:
        owners = [self.owners.get(rows[0]["n"]) for rows in requests]
        return {at for at, owner in enumerate(owners) if owner is not None and owner.has_left}

    def _check(self, batch: Batch, requests: Sequence[Sequence[Row]]) -> None:
        rows = list(itertools.chain.from_iterable(requests))
        # A batch from before a change of the limit runs again as a whole; its worker splits it.
        limit = math.inf if len(requests) == 1 or self._has_new_limits else batch.limit_rows
        if list(map(len, requests)) != batch.rows or sum(batch.costs or batch.rows) > limit:
            self.violated(f"{batch} has {requests}")
        group_by = {api.name: api.group_by for api in self.service.apis}.get(batch.api)
        if group_by == "g" and not self._has_changed and len({row["g"] for row in rows}) > 1:
            self.violated(f"batch {batch.batch} mixes groups: {requests}")

    def begins(self, batch: Batch, requests: Sequence[Sequence[Row]]) -> None:
        """A worker begins a batch: what may not run again has not run before."""
        for row in itertools.chain.from_iterable(requests):
            self._begun[row["n"]] += 1
            if not (batch.idempotent or self._has_changed) and self._begun[row["n"]] > 1:
                self.violated(f"batch {batch.batch} runs {row} again")

    # From start to end

    async def run(self) -> None:
        served = self.served
        await served.pool.listen(SOCKET)
        await served.pool.listen(STANDBY_SOCKET, standby=True)
        self._supervisor.start()
        served.events.expect_workers(range(self._workers))
        await served.events.described
        if self.draws.happens("all_wait", 0.8):
            await served.batching.ready.wait()
        for number in range(2):
            if self.draws.happens(f"x{number}", 0.15):
                Worker(self, number, None, standby=True, process=None)
        is_burst = self.draws.happens("burst", 0.1)
        names = [f"c{number}" for number in range(30 if is_burst else 10)]
        clients = [Client(self, name).run(0.5 if is_burst else None) for name in names if self._has(name)]
        await asyncio.gather(*clients, *self._events())
        self._is_over = True
        await asyncio.sleep(_SETTLE_S)
        self._check_nothing_left()
        if not self.is_stopping:
            for api in self.served.events.described.result().apis if not self._has_changed else ():
                await Client(self, f"probe of {api.name}", only=api).run()
        await self._stop()

    def _has(self, client: str) -> bool:
        return self.draws.happens(client, 0.6)

    def _events(self) -> list[Awaitable[None]]:
        events = {
            self._reload: 0.2,
            self._recycle: 0.1,
            self._resize: 0.1,
            self._change_settings: 0.2,
            self._drain_early: 0.1,
        }
        return [
            self._at_some_time(event)
            for event, each in events.items()
            if self.draws.happens(event.__name__, each)
        ]

    async def _at_some_time(self, event: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self.draws.random(event.__name__).uniform(0, 2))
        if not self.is_stopping:
            with contextlib.suppress(ReplacementFailed):
                await event()

    async def _reload(self) -> None:
        """Replace all workers; the new code may lack an API, or have other settings."""
        served = self.served
        if self.draws.happens("new_code", 0.5):
            self.service, self._has_changed = changed_service(self.draws, self.service), True
        async with self._supervisor.replacing_all() as standbys:
            removed = served.prepare_take_over(standbys.launches).removed
            await served.withdraw(removed, timeout_s=0.5)
            try:
                change = served.prepare_take_over(standbys.launches)
                standbys.take_over(lambda launches: served.take_over(launches, change))
            finally:
                served.restore()

    async def _recycle(self) -> None:
        await self._supervisor.replace(0)

    async def _resize(self) -> None:
        before, workers = self._supervisor.workers, self._workers + self._choices.choice([0, 1, 2])
        await self._supervisor.resize(workers)
        self.served.events.expect_workers(range(before, workers))
        self.served.events.forget_workers(range(workers, before))

    async def _change_settings(self) -> None:
        choices = self._choices
        overrides = {
            "mb_max_latency": choices.choice([5, 2000]),
            "mb_max_batch_size": choices.choice([1, 5]),
            "timeout": choices.choice([1, 3]),
        }
        settings = dataclasses.replace(
            self._settings,
            overrides=for_all_apis(overrides),
            max_queue_rows=choices.choice([8, 100]),
            fair_by=choices.choice([None, b"x-tenant"]),
        )
        self._has_new_limits = True
        self.served.change(self.served.prepare(settings))
        self.gateway.change(settings)

    async def _drain_early(self) -> None:
        self.is_stopping = True
        draining = asyncio.ensure_future(self.gateway.front_end.drain())
        if self.draws.happens("gives_up", 0.5):
            await asyncio.sleep(0.05)
            self.gateway.front_end.give_up()
        await draining

    async def _stop(self) -> None:
        self.is_stopping = True
        await self.gateway.front_end.drain()
        await self.gateway.close()
        await self._supervisor.stop()
        await asyncio.sleep(_SETTLE_S)
        if left := [*asyncio.all_tasks() - {asyncio.current_task()}, *self.loop.timers()]:
            self.violated(f"after the end are left: {left}")

    def _check_nothing_left(self) -> None:
        """Nobody asks any more, so nothing waits, runs, or is held."""
        listener, pool, batching = self.gateway.front_end.listener, self.served.pool, self.served.batching
        core, coalescing = batching.dispatcher._core, batching._coalescing.values()
        slots = core._slots
        left = {
            "requests": len(core.unanswered),
            "running batches": slots.running + sum(one.is_busy for one in pool._workers),
            "pending actions": not core.is_empty,
            "busy workers": slots.workers - slots.idle,
            "workers without a slot": len(pool.ready()) - slots.workers,
            "connections": listener.open.count + len(self._server.connections) + len(self._server.tasks),
            "bytes of bodies": listener.pool.used_bytes,
            "coalesced": sum(each.requests + each.size_bytes + len(each._open) for each in coalescing),
        }
        self.violations += [f"{count} {what} left" for what, count in left.items() if count]

    # The supervisor

    def _supervise(self) -> Supervisor:
        served = self.served

        def exited(end: WorkerExit) -> None:
            served.events.worker_exited(end.index, end.how, failures=end.failures, retry_s=end.retry_s)
            if end.victim is not None:
                served.lethal.killed(end.victim)

        return Supervisor(
            self.processes,
            workers=self._workers,
            on_exit=exited,
            take_over=served.take_over,
            explain=served.events.failures.why_no_standby,
            retire=served.pool.retire_launch,
            drop=served.pool.drop_launch,
        )

    def _actions(self) -> SupervisorActions:
        return SupervisorActions(
            kill=lambda launch: self._supervisor.kill(launch),
            restarts=lambda: self._supervisor.restarts,
            stands_by=lambda launch: self._supervisor.mark_ready(launch),
            finished_batch=lambda launch: self._supervisor.finished_batch(launch),
            connection_lost=lambda launch: self._supervisor.connection_lost(launch),
        )


class _Log(logging.Handler):
    """Keeps what is logged with a traceback: an error of the gateway."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.errors.append(
                f"{record.getMessage()}\n{logging.Formatter().formatException(record.exc_info)}"
            )


class Outcome(SimpleNamespace):
    """What a schedule came to.

    Attributes:
        violations: what did not hold.
        trace: a digest of all that arrived anywhere, and when.
        statuses: how many responses had each status.
        names: what has happened.
    """


def run(seed: int, without: Collection[str] = ()) -> Outcome:
    """Run the schedule of a seed, without some of what happens in it."""
    draws, loop, log = Draws(seed, without), SimulatedLoop(), _Log()
    made: list[Schedule] = []

    async def main() -> None:
        made.append(Schedule(draws, loop))
        await made[0].run()

    violations = []
    with pytest.MonkeyPatch.context() as patch:
        _replace_clocks(patch, loop, seed)
        logger = logging.getLogger("uncork")
        patch.setattr(logger, "propagate", False)
        patch.setattr(logger, "handlers", [log])
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(main())
        except (Wedged, Exception) as error:
            violations.append(f"the schedule did not end: {error!r}")
    violations += [*made[0].violations, *log.errors, *CheckedLoop.problems]
    CheckedLoop.problems.clear()
    trace = made[0].network.trace.hexdigest()
    return Outcome(violations=violations, trace=trace, statuses=made[0].statuses, names=list(draws.names))


def _replace_clocks(patch: pytest.MonkeyPatch, loop: SimulatedLoop, seed: int) -> None:
    """Replace clocks and random numbers, and the pages, which take long to make and which nobody opens."""
    for name in ("perf_counter", "monotonic", "time"):
        patch.setattr(time, name, loop.now)
    for made in (AsyncDispatcher, Coalescing):
        patch.setattr(uncork_gateway.batching, made.__name__, functools.partial(made, clock=loop.time))
    patch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)
    patch.setattr(uncork_gateway.headers, "_OURS", b"id")
    patch.setattr(uncork_gateway.headers, "_numbers", itertools.count())
    pages = SimpleNamespace(app=no_app, admin_app=None, start=lambda: None, close=lambda: None)
    patch.setattr(uncork_gateway.gateway, "ServicePages", lambda *_, **__: SimpleNamespace(pages=pages))
    random.seed(seed)
