"""A service of the simulated gateway: its workers, its changes, and what must hold for its batches."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.services import changed_service, some_service
from tests.simulation.workers import BAD_ROW, Processes, Row, Worker, rows_of, status_of
from uncork_gateway.backends.worker_connection import Done, Executed
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.overrides import for_all_apis
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

if TYPE_CHECKING:
    from tests.simulation.requests import Ask
    from tests.simulation.schedule import GatewaySchedule


class RunningService:
    """One service, or another version of the first one. Create it inside the loop.

    Attributes:
        name: None if it is the only one, and has none.
        label: its name without the version.
        prefix: begins the names of its choices.
        is_asked: True once clients ask it, also when it is removed.
        description: its code.
        has_changed: True once its code may have changed; ``reshaped`` are the APIs of another form now.
        is_leaving: True once it is removed.
    """

    def __init__(self, schedule: GatewaySchedule, name: str | None, *, is_first: bool = True) -> None:
        self.schedule, self.prefix, self.name = schedule, "" if is_first else f"{name}.", name
        self._draws = schedule.draws
        self._choices = self._draws.random(f"{self.prefix}schedule")
        self._is_version = name is not None and "@" in name
        self.label = (name or "sim").partition("@")[0]
        self.description = some_service(self._draws, "" if self._is_version else self.prefix)
        self.reshaped: set[str] = set()
        self._costly = _costly(self.description)
        self.has_changed = self.is_leaving = self.is_asked = self._has_new_limits = False
        self._lacks_workers = self._is_version
        self._begun: Counter[int] = Counter()
        self._cancelled: defaultdict[int, set[int]] = defaultdict(set)
        self.processes = Processes(self)
        reserved = sum(api.settings.workers or 0 for api in self.description.apis)
        self._workers = reserved + self._choices.choice([1, 1, 2, 3])
        self._settings = dataclasses.replace(
            schedule.settings,
            workers=self._workers + 2,
            own_routes=is_first or self._is_version,
            weight=self._choices.choice([None, 1.0]),
            shadow=self._is_version and self._draws.happens("shadow", 0.3),
        )
        self._has_small_queue = self._settings.max_queue_rows < 1000
        self.served = schedule.gateway.add(self._settings, self._actions(), name=name)
        self._supervisor = self._supervise()
        self._execute_in_pool, self._cancel_in_pool = self.served.pool.execute, self.served.pool.cancel
        self.served.pool.execute = self._execute  # type: ignore[method-assign]
        self.served.pool.cancel = self._cancel  # type: ignore[method-assign]
        self.socket, self.standby_socket = f"{self.prefix}workers", f"{self.prefix}standbys"

    def model_of(self, api: ApiDescription) -> str:
        """Return the name of an API in other protocols."""
        return f"{self.label}.{api.name}"

    def route_of(self, api: ApiDescription) -> str:
        return api.route if self._settings.own_routes else f"/{self.name}/{api.name}"

    async def start(self) -> None:
        """Start the workers; return when clients may ask."""
        served = self.served
        await served.pool.listen(self.socket)
        await served.pool.listen(self.standby_socket, standby=True)
        self._supervisor.start()
        served.events.expect_workers(range(self._workers))
        await served.events.described
        if self._draws.happens(f"{self.prefix}all_wait", 0.8):
            await served.batching.ready.wait()
        else:
            self._lacks_workers = True
        for number in range(2):
            if self._draws.happens(f"{self.prefix}x{number}", 0.15):
                Worker(self, number, None, standby=True, process=None)
        self.is_asked = True

    async def stop(self) -> None:
        await self._supervisor.stop()

    async def remove(self) -> None:
        """Remove it while its requests run."""
        self.is_leaving = True
        await self.schedule.gateway.remove(self.served, timeout_s=self._choices.choice([0.0, 0.5, 30.0]))
        await self.stop()

    # What explains the responses

    def explains(self, ask: Ask, status: int, text: str) -> bool:
        """Return whether something that happened to any version explains an error."""
        return any(one._explains(ask, status, text) for one in self._versions)

    @property
    def _versions(self) -> list[RunningService]:
        return [one for one in self.schedule.services if one.label == self.label]

    def has_reshaped(self, api: ApiDescription) -> bool:
        """Return whether the API's form may have changed since the clients asked."""
        return any(api.name in one.reshaped for one in self._versions)

    def _explains(self, ask: Ask, status: int, text: str) -> bool:
        schedule, is_costly = self.schedule, ask.api.name in self._costly
        is_stopping = schedule.is_stopping or self.is_leaving
        if status in ask.faults:
            return True
        causes = {
            (404, ""): self.has_changed or self.is_leaving,
            (status_of(ask.rows), BAD_ROW): status != 200,
            (502, "died while running"): schedule.has_failed,
            (503, "cannot complete within the latency goal"): True,
            (503, "the queue of this API is full"): self._has_small_queue or is_costly,
            (503, "of the first class displaced"): ask.api.classes is not None,
            (503, "no worker is ready"): self._lacks_workers or schedule.has_failed,
            (503, "the server is shutting down"): is_stopping,
            (503, "this API was removed"): self.has_changed or self.is_leaving,
            (504, "exceeded the timeout of this API"): schedule.has_failed,
            (504, "expired"): ask.timeout_s is not None,
        }
        if self.has_reshaped(ask.api):
            causes |= {
                (400, ""): True,
                (415, ""): True,
                (500, "cannot carry"): True,
                (503, "this API was replaced"): True,
                (501, "ModelStreamInfer"): True,
            }
        return any(holds and status == code and words in text for (code, words), holds in causes.items())

    # What workers get: the pool's methods

    def _execute(
        self, worker: int, batch: Batch, bodies: Sequence[bytes], done: Done, *, on_piece: Any = None
    ) -> None:
        requests = rows_of(batch, bodies)
        self._check(batch, requests)
        if gone := self._gone(requests):
            self.schedule.violated(f"{batch} has requests {gone} of clients that have left: {requests}")

        def checked(executed: Executed) -> None:
            if untold := self._gone(requests) - self._cancelled[batch.batch]:
                self.schedule.violated(f"no worker was told that {untold} of {batch} left: {requests}")
            done(executed)

        self._execute_in_pool(worker, batch, bodies, checked, on_piece=on_piece)

    def _cancel(self, worker: int, batch: int, requests: Sequence[int]) -> None:
        if self._cancelled[batch].intersection(requests):
            self.schedule.violated(f"{self.name}: {requests} of {batch} left twice")
        self._cancelled[batch].update(requests)
        self._cancel_in_pool(worker, batch, requests)

    def _gone(self, requests: Sequence[Sequence[Row]]) -> set[int]:
        if self._settings.shadow:
            return set()
        owners = [self.schedule.owners.get(rows[0]["n"]) for rows in requests]
        return {at for at, owner in enumerate(owners) if owner is not None and owner.has_left}

    def _check(self, batch: Batch, requests: Sequence[Sequence[Row]]) -> None:
        rows = list(itertools.chain.from_iterable(requests))
        # A batch from before a change of the limit runs again as a whole; its worker splits it.
        has_new_limits = self._has_new_limits or self.has_changed
        limit = math.inf if len(requests) == 1 or has_new_limits else batch.limit_rows
        if sum(batch.costs or batch.rows) > limit:
            self.schedule.violated(f"{batch} has {requests}")
        group_by = {api.name: api.group_by for api in self.description.apis}.get(batch.api)
        if group_by == "g" and not self.has_changed and len({row["g"] for row in rows}) > 1:
            self.schedule.violated(f"batch {batch.batch} mixes groups: {requests}")

    def begins(self, batch: Batch, requests: Sequence[Sequence[Row]]) -> None:
        """A worker begins a batch: what may not run again has not run before."""
        for row in itertools.chain.from_iterable(requests):
            self._begun[row["n"]] += 1
            is_new = row["n"] in self.schedule.owners
            if is_new and not (batch.idempotent or self.has_changed) and self._begun[row["n"]] > 1:
                self.schedule.violated(f"batch {batch.batch} runs {row} again")

    def left(self) -> dict[str, int]:
        """Return the counts of requests, batches and bytes that are still held."""
        pool, batching = self.served.pool, self.served.batching
        core, coalescing = batching.dispatcher._core, batching._coalescing.values()
        slots = core._slots
        return {
            "requests": len(core.unanswered),
            "running batches": slots.running + sum(one.is_busy for one in pool._workers),
            "pending actions": not core.is_empty,
            "busy workers": slots.workers - slots.idle,
            "workers without a slot": len(pool.ready()) - slots.workers,
            "coalesced": sum(each.requests + each.size_bytes + len(each._open) for each in coalescing),
        }

    # Changes

    async def reload(self) -> None:
        """Replace all workers; the new code may lack an API, or have other settings."""
        served, before = self.served, {api.name: _shape(api) for api in self.description.apis}
        if self._draws.happens(f"{self.prefix}new_code", 0.5):
            self.description, self.has_changed = changed_service(self._draws, self.description), True
            after = {api.name: _shape(api) for api in self.description.apis}
            self.reshaped = {name for name in after if after[name] != before[name]}
            self._costly |= _costly(self.description)  # also while the code of before still runs
        async with self._supervisor.replacing_all() as standbys:
            removed = served.prepare_take_over(standbys.launches).removed
            await served.withdraw(removed, timeout_s=0.5)
            try:
                change = served.prepare_take_over(standbys.launches)
                standbys.take_over(lambda launches: served.take_over(launches, change))
            finally:
                served.restore()

    async def recycle(self) -> None:
        for process in self._supervisor.current_workers()[:1]:
            await self._supervisor.replace(process)

    async def resize(self) -> None:
        workers = self._workers + self._choices.choice([0, 1, 2])
        before = await self._supervisor.resize(workers)
        self.served.events.expect_workers(range(before, workers))
        self.served.events.forget_workers(range(workers, before))

    async def change_settings(self) -> None:
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
        self._has_new_limits = self._has_small_queue = True
        self.served.change(self.served.prepare(settings))
        self.schedule.gateway.change(settings)

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


def _costly(service: ServiceDescription) -> set[str]:
    """Return the names of the APIs whose rows have costs, which count in the queue."""
    return {api.name for api in service.apis if api.settings.cost is not None}


def _shape(api: ApiDescription) -> tuple[object, ...]:
    """Return the settings that decide which requests an API accepts, and in which form."""
    return str(api.input), api.task, api.streams, api.classes is None, api.group_by
