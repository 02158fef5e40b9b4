"""The number of workers follows the traffic; with a clock of the test's own."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.gateway.gateway_stage import gateway
from tests.gateway.pages.status.staged import stats
from tests.loops import until
from uncork_dispatcher import (
    ApiSample,
    ApiStats,
    AsyncDispatcher,
    ClassStats,
    Decision,
    Estimate,
    ScalingReason,
)
from uncork_gateway.services.scaling import Scaling

# A row takes 50 ms and shares nothing with others, so 100 rows/s need more than five workers.
BY_ROWS = Estimate(intercept_s=0.001, slope_s=0.05, spread=0.0, earned_rows=64)
UNKNOWN = Estimate(0.0, 0.0, 0.0, 0)


class Stage:
    """A dispatcher with one API, workers that start at once, and the clock."""

    def __init__(
        self,
        *,
        least: int,
        most: int,
        managed: bool = True,
        estimate: Estimate = BY_ROWS,
        idle_after_s: float = math.inf,
    ) -> None:
        self.now = 0.0
        self.arrived = 0.0
        self.estimate = estimate
        self.bulk: tuple[float, ClassStats] | None = None
        """The goal of bulk, and what is queued."""
        self.reserved = 0
        self.unit = "bytes"
        self.count = max(1, least)
        self.starting = 0
        self.is_empty = True
        self.is_replacing = False
        self.start: Callable[[], object] | None = None
        """What the next request calls while the service is asleep."""
        self.resized: list[int] = []
        self.scaling = Scaling(
            cast(AsyncDispatcher[Any, Any], self),
            apis=lambda: ["predict"],
            ready=lambda: self.count - self.starting,
            target=lambda: self.count,
            resize=self.resize if managed else None,
            least=least,
            most=most,
            idle_after_s=idle_after_s,
            is_replacing=lambda: self.is_replacing,
            clock=lambda: self.now,
        )

    def stats(self) -> list[ApiStats]:
        found = stats(estimate=self.estimate)
        found = found._replace(rules=replace(found.rules, workers=self.reserved, unit=self.unit))
        if self.bulk is None:
            return [found]
        goal_s, queued = self.bulk
        return [found._replace(bulk=queued, rules=replace(found.rules, bulk_goal_s=goal_s))]

    def sample(self, api: str) -> ApiSample:
        return ApiSample(self.estimate, 0.001, self.arrived, 0.0)

    def workers_on_demand(self, start: Callable[[], object]) -> None:
        self.start = start

    async def resize(self, workers: int) -> None:
        self.resized.append(workers)
        self.count = workers

    async def run(self, *, seconds: int, rows_per_s: float) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.arrived += rows_per_s
            await self.scaling.check()


async def test_workers_start_when_two_looks_want_more(caplog: pytest.LogCaptureFixture) -> None:
    on = Stage(least=1, most=16)
    with caplog.at_level(logging.INFO, "uncork.gateway"):
        await on.run(seconds=10, rows_per_s=100)
        assert on.resized == []
        await on.run(seconds=10, rows_per_s=100)

    [workers] = on.resized
    assert 6 <= workers <= 10
    assert on.scaling.wanted == workers
    assert f"starting workers, from 1 to {workers}: the traffic needs {workers}" in caplog.text


async def test_workers_stop_one_by_one_long_after_the_traffic_has(caplog: pytest.LogCaptureFixture) -> None:
    on = Stage(least=1, most=16)
    await on.run(seconds=20, rows_per_s=100)
    [most] = on.resized
    await on.run(seconds=250, rows_per_s=0)
    assert on.resized == [most]
    with caplog.at_level(logging.INFO, "uncork.gateway"):
        await on.run(seconds=130, rows_per_s=0)

    assert on.resized[1:3] == [most - 1, most - 2]
    assert f"stopping workers, from {most} to {most - 1}: the traffic needs 1" in caplog.text


async def test_arrivals_in_another_unit_want_no_workers() -> None:
    """A reload may change the cost."""
    on = Stage(least=1, most=16)
    await on.run(seconds=20, rows_per_s=100)
    on.unit = "rows"
    await on.run(seconds=10, rows_per_s=1)

    assert on.scaling.wanted == 1


async def test_the_bounds_hold() -> None:
    on = Stage(least=2, most=3)
    await on.run(seconds=30, rows_per_s=100)

    assert on.resized == [3]
    assert on.scaling.wanted > 3


async def test_reserved_workers_are_added_and_do_not_follow_their_traffic() -> None:
    """The other APIs have no requests, and need one worker."""
    on = Stage(least=1, most=16)
    on.reserved = 3
    await on.run(seconds=30, rows_per_s=100)

    assert on.resized == [4]
    assert on.scaling.wanted == 4


async def test_a_number_that_something_else_changes_is_only_computed() -> None:
    on = Stage(least=1, most=1, managed=False)
    on.count = 4
    assert on.scaling.wanted == 4
    await on.run(seconds=20, rows_per_s=100)

    assert on.resized == []
    assert on.scaling.wanted >= 6


async def test_as_many_as_there_are_are_wanted_while_the_need_is_unknown() -> None:
    on = Stage(least=1, most=1, managed=False, estimate=UNKNOWN)
    on.count = 4
    await on.run(seconds=20, rows_per_s=100)

    assert on.scaling.decision is not None
    assert on.scaling.wanted == 4
    on.count = 0
    assert on.scaling.wanted == 1


async def test_the_time_from_launch_to_ready_is_exported(tmp_path: Path) -> None:
    """That of workers which the supervisor starts."""
    async with gateway(tmp_path, workers=2) as on:
        scaling = on.service.follow_traffic(least=1, most=2)
        scaling.decision = Decision(2, 2, ScalingReason("up", "predict", "goal"))
        on.service.events.expect_workers([0])
        await on.worker(index=1)
        described = (await on.http.get("/status?format=json")).json()["scaling"]
        assert described["start_s"] is None
        assert "\nuncork_worker_start_seconds{" not in (await on.http.get("/metrics")).text

        await on.worker(index=0)
        described = (await on.http.get("/status?format=json")).json()["scaling"]
        assert 0 < described["start_s"] < 60
        assert "a start takes about" in described["sentence"]
        sample = f'\nuncork_worker_start_seconds{{service="fake"}} {described["start_s"]}\n'
        assert sample in (await on.http.get("/metrics")).text


async def test_a_worker_that_was_stopped_while_it_started_is_not_expected(tmp_path: Path) -> None:
    """If it becomes ready after that, its start teaches nothing."""
    async with gateway(tmp_path, workers=2) as on:
        on.service.events.expect_workers([0])
        on.service.events.forget_workers([0])
        await on.worker(index=0)
        assert on.service.batching.dispatcher.startup_s is None


async def test_the_takeover_from_a_worker_that_has_died_teaches_nothing(tmp_path: Path) -> None:
    """The new process was started for it, not when the next process of this worker was due."""
    async with gateway(tmp_path, workers=1) as on:
        old = await on.worker()
        await on.standby(2)
        old.close()
        await until(lambda: not on.service.pool.ready())
        on.service.events.worker_exited(0, "exited with code 1", failures=1, retry_s=5.0)
        on.service.take_over([2])
        assert on.service.pool.ready() == {0}
        assert on.service.batching.dispatcher.startup_s is None


async def test_workers_start_and_stop_with_the_bounds() -> None:
    """At once, and only as far as the bounds require."""
    on = Stage(least=2, most=4)
    for least, most, resized in ((3, 5, [3]), (1, 9, [3]), (1, 2, [3, 2]), (6, 6, [3, 2, 6])):
        await on.scaling.change_bounds(least, most)
        assert on.resized == resized
        assert (on.scaling.least, on.scaling.most) == (least, most)


@pytest.mark.parametrize(("goal_s", "workers"), [(math.inf, 1), (100.0, 1), (5.0, 4)])
async def test_bulk_gets_the_workers_that_its_goal_needs(goal_s: float, workers: int) -> None:
    """300 rows are queued all the time, whatever the number of workers; a worker does 20 rows/s."""
    on = Stage(least=1, most=16)
    on.bulk = goal_s, ClassStats(300, 300.0, 0, 1.0)
    await on.run(seconds=60, rows_per_s=0)
    assert on.count == workers


# From zero


async def test_the_last_worker_stops_when_no_request_has_arrived_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the next request starts one, however many ran before."""
    on = Stage(least=0, most=16, idle_after_s=60)
    await on.run(seconds=20, rows_per_s=100)
    [many] = on.resized
    with caplog.at_level(logging.INFO, "uncork.gateway"):
        await on.run(seconds=59, rows_per_s=0)
        assert on.resized == [many]
        assert not on.scaling.is_from_zero
        await on.run(seconds=300, rows_per_s=0)
        assert on.resized == [many, 0]
        assert (on.scaling.wanted, on.scaling.decision) == (0, Decision(0, 0, ScalingReason("asleep")))

        assert on.start is not None
        on.start()
        on.start()
        on.starting = 1
        await on.run(seconds=1, rows_per_s=1)
        assert (on.resized, on.scaling.is_from_zero) == ([many, 0, 1], True)
        on.starting = 0
        await on.run(seconds=20, rows_per_s=1)
        assert (on.resized, on.scaling.is_from_zero) == ([many, 0, 1], False)
        await on.run(seconds=60, rows_per_s=0)
        assert on.resized == [many, 0, 1, 0]

    assert "stopping all workers: no request has arrived for 60 s" in caplog.text
    assert caplog.text.count("starting a worker: a request has arrived") == 1


@pytest.mark.parametrize("busy", ["running", "starting", "replaced", "refused", "kept"])
async def test_a_service_in_use_keeps_its_worker(busy: str) -> None:
    """While a request runs, a worker starts or is replaced, requests are refused, or one is the least."""
    on = Stage(least=int(busy == "kept"), most=1, idle_after_s=5)
    on.is_empty = busy != "running"
    on.starting = int(busy == "starting")
    on.is_replacing = busy == "replaced"
    await on.run(seconds=30, rows_per_s=int(busy == "refused"))
    assert on.resized == []


async def test_a_worker_that_dies_while_the_service_falls_asleep_does_not_keep_it_asleep(
    tmp_path: Path,
) -> None:
    """The stop may have to wait for others, which replace workers."""
    async with gateway(tmp_path, workers=1, overrides={"mb_max_latency": 60_000}) as on:
        on.service.events.expect_workers([0])
        worker = await on.worker()

        async def resize(workers: int) -> None:
            worker.close()
            await until(lambda: not on.service.pool.ready())
            on.service.events.worker_exited(0, "exited with code 1")
            on.service.events.forget_workers([0])

        scaling = on.service.follow_traffic(
            least=0, most=1, idle_after_s=1e-9, target=lambda: 1, resize=resize
        )
        await scaling.check()
        asking = on.post("/echo", 1)
        await until(lambda: asking.done() or on.service.batching.dispatcher.unanswered)
        assert not asking.done()


async def test_a_request_that_a_worker_elsewhere_takes_wakes_a_service() -> None:
    """Nobody asks for a worker then. Requests from before it fell asleep do not count."""
    on = Stage(least=0, most=2, idle_after_s=5)
    await on.run(seconds=3, rows_per_s=1)
    await on.run(seconds=20, rows_per_s=0)
    assert on.resized == [0]
    await on.run(seconds=1, rows_per_s=1)
    assert on.resized == [0, 1]


async def test_other_bounds_wake_a_service_only_if_they_require_it() -> None:
    on = Stage(least=0, most=2, idle_after_s=5)
    await on.run(seconds=10, rows_per_s=0)
    await on.scaling.change_bounds(0, 4)
    assert on.resized == [0]
    await on.scaling.change_bounds(2, 4)
    assert on.resized == [0, 2]
    await on.scaling.change_bounds(0, 4)
    await on.run(seconds=10, rows_per_s=0)
    assert on.resized == [0, 2, 0]


async def test_a_reload_wakes_a_service_that_is_falling_asleep() -> None:
    """Its next worker is then expected; no request starts another one."""

    class Reloaded(Stage):
        async def resize(self, workers: int) -> None:
            await super().resize(workers)
            if not workers:
                await self.scaling.wake()

    on = Reloaded(least=0, most=2, idle_after_s=5)
    await on.run(seconds=6, rows_per_s=0)
    assert (on.resized, on.start) == ([0, 1], None)


async def test_a_reload_wakes_a_service() -> None:
    on = Stage(least=0, most=2, idle_after_s=5)
    await on.scaling.wake()
    assert on.resized == []
    await on.run(seconds=10, rows_per_s=0)
    await on.scaling.wake()
    await on.run(seconds=4, rows_per_s=0)
    assert on.resized == [0, 1]
