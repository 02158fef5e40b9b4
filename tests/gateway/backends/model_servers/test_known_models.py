"""Which models a proxy knows, and for how long; on a clock that the test sets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.running import turns
from uncork_dispatcher import ApiRules, AsyncDispatcher, BatchResult, TaskRunner
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.backends.model_servers import known_models
from uncork_gateway.backends.model_servers.known_models import UNKNOWN, KnownModels
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.metrics import Metrics
from uncork_gateway.telemetry.recorder import Recorder

HOUR_S = 3600.0


class RecordingDispatcher(AsyncDispatcher[str, str]):
    """A dispatcher that keeps the latest rules of each API."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.rules: dict[str, ApiRules] = {}
        super().__init__(*args, **options)

    def set_api(self, rules: ApiRules) -> None:
        self.rules[rules.name] = rules
        super().set_api(rules)


class Stage:
    """A registry with a real dispatcher, whose only worker answers when ``gate`` is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.gate = asyncio.Event()
        self.metrics = Metrics()
        self.recorder = Recorder(
            self.metrics,
            sample=lambda model: self.dispatcher.sample(model),
            batches=FinishedBatches(),
            clock=lambda: self.now,
        )
        self.dispatcher = RecordingDispatcher(
            TaskRunner(self._execute), observers=(self.recorder, self.metrics)
        )
        self.dispatcher.worker_ready(0)
        self.known = KnownModels(
            lambda name: ApiRules(name=name),
            dispatcher=self.dispatcher,
            metrics=self.metrics,
            forget_api=self._forget,
            clock=lambda: self.now,
        )

    def _forget(self, model: str) -> bool:
        if not self.dispatcher.remove_api(model):
            return False
        self.metrics.forget(model)
        self.recorder.forget(model)
        return True

    async def _execute(self, job: Batch[Any]) -> BatchResult[str]:
        await self.gate.wait()
        return BatchResult(payloads_of(job))

    async def request(self, model: str) -> asyncio.Task[object]:
        """Submit a request that a worker runs, or that waits for one."""
        asking = asyncio.ensure_future(self.dispatcher.call(self.known.use(model), "x"))
        await turns()
        return asking

    def count(self, model: str) -> None:
        self.known.tally(model).answered(200, 0.001)

    def names(self) -> list[set[str]]:
        """Return the models in /status, the dispatcher and /metrics."""
        known = set(self.known.names())
        queues = {stats.name for stats in self.dispatcher.stats()}
        labels = {
            sample.labels["api"]
            for family in self.metrics.collect()
            for sample in family.samples
            if "api" in sample.labels
        }
        return [names - {UNKNOWN} for names in (known, queues, labels)]


async def test_the_shared_api_is_named_while_it_is_used() -> None:
    """It comes last, and only while recent figures show it; models are in alphabetical order."""
    on = Stage()
    assert on.known.names() == []
    for model in ("n", "m"):
        on.known.add(model)
    on.known.use("other")
    assert on.known.names() == ["m", "n", UNKNOWN]
    on.now += 30
    assert on.known.names() == ["m", "n"]


async def test_a_model_that_comes_back_starts_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its earlier counts are not subtracted from the recent ones, which include its first answer."""
    monkeypatch.setattr(known_models, "_MOST", 1)

    on = Stage()
    on.known.add("m")
    on.count("m")
    on.now += 10
    on.known.add("other")
    on.known.add("m")
    on.count("m")
    on.now += 30

    assert on.recorder.recent("m", on.now).counts.statuses == {200: 1}


async def test_the_shared_api_is_never_forgotten() -> None:
    """Nor limited, also after an answer to a call whose model has a name that cannot be known."""
    on = Stage()
    unlimited = on.dispatcher.rules[UNKNOWN].max_batch_rows
    on.known.add(UNKNOWN)
    on.known.limit(UNKNOWN, 8)
    assert on.dispatcher.rules[UNKNOWN].max_batch_rows == unlimited
    on.now += HOUR_S + 1
    on.known.expire()
    on.gate.set()
    await (await on.request("new"))


async def test_a_model_is_not_forgotten_while_it_has_requests() -> None:
    on = Stage()
    for model in ("runs", "queued"):
        on.known.add(model)
        on.count(model)
    callers = [await on.request("runs"), await on.request("queued")]
    on.now += 2 * HOUR_S
    assert on.names() == [{"runs", "queued"}] * 3

    on.gate.set()
    await asyncio.gather(*callers)
    assert on.names() == [set()] * 3


async def test_a_new_model_takes_the_place_of_the_idlest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the models without requests; a model used since it was added stays."""
    monkeypatch.setattr(known_models, "_MOST", 3)

    on = Stage()
    for model in ("busy", "old", "used"):
        on.known.add(model)
        on.now += 1
    caller = await on.request("busy")
    on.known.use("old")
    on.known.use("used")
    on.now += 1
    on.known.use("busy")
    on.known.use("used")
    on.known.add("new")
    assert on.known.names() == ["busy", "new", "used"]

    on.known.use("used")
    on.known.use("new")
    on.known.add("newer")
    assert on.known.names() == ["busy", "new", "newer"], "the idlest, busy, has a request"
    on.gate.set()
    await caller


async def test_without_room_a_new_model_is_queued_with_the_unknown_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until a known model has no requests."""
    monkeypatch.setattr(known_models, "_MOST", 1)

    on = Stage()
    on.known.add("busy")
    caller = await on.request("busy")
    on.known.add("new")
    assert on.known.use("new") == UNKNOWN

    on.gate.set()
    await caller
    on.known.add("new")
    assert (on.known.use("busy"), on.known.use("new")) == (UNKNOWN, "new")


async def test_a_model_is_limited_until_it_is_forgotten() -> None:
    """Others are not; a limit above the rules or the last one changes nothing."""
    on = Stage()

    def most_rows(model: str) -> float:
        return on.dispatcher.rules[model].max_batch_rows

    unlimited = ApiRules(name="m").max_batch_rows
    on.known.limit("m", 8)
    on.known.add("m")
    on.known.add("n")
    assert most_rows("m") == unlimited
    for rows in (8, 9, 10**6, 0):
        on.known.limit("m", rows)
        assert (most_rows("m"), most_rows("n")) == (8, unlimited)
    on.known.limit("m", 4)
    assert most_rows("m") == 4

    on.now += HOUR_S + 1
    on.known.expire()
    on.known.add("m")
    assert most_rows("m") == unlimited
    on.known.limit("m", 6)
    assert most_rows("m") == 6


async def test_a_limit_learned_late_stays_within_changed_rules() -> None:
    """The call that taught it was sent before the change."""
    on = Stage()
    on.known.add("m")
    on.known.limit("m", 40)
    on.known.change(lambda model: ApiRules(name=model, max_batch_rows=16))
    on.known.limit("m", 36)
    assert on.dispatcher.rules["m"].max_batch_rows == 16
    on.known.limit("m", 12)
    assert on.dispatcher.rules["m"].max_batch_rows == 12
