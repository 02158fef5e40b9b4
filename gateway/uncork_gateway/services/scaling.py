"""Decides how many workers the traffic needs, from the dispatcher's estimates.

The second class of an API, *bulk*, counts with the rows that must end to meet its goal. Its arrivals do not
count: clients that send a request as soon as one is answered would need ever more workers.
Without a goal, bulk needs no worker. Workers that an API has reserved are added to the need of the others.

If the least number is 0, the service falls asleep when no request has arrived for a while: its last worker
stops. The next request wakes it up.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from uncork_dispatcher import ApiDemand, ApiStats, AsyncDispatcher, Autoscaler, Decision, ScalingReason
from uncork_dispatcher.capacity.arrival_history import LOOK_S
from uncork_gateway.service_log import ServiceLog

_COUNT_EVERY_S = 1.0


class Scaling:
    """Starts or stops workers, according to traffic and estimates.

    Args:
        ready: returns the number of workers that run, also of those that wait to be served.
        target: returns the number of workers that should run.
        resize: starts or stops workers to reach a number; None if another program scales.
        least, most: the bounds of the number.
        idle_after_s: after this many seconds without requests, the last worker stops, if ``least`` is 0.
        is_replacing: returns True while workers are replaced; the last one does not stop then.

    Attributes:
        decision: the latest decision; None before the first.
        is_from_zero: True from the stop of the last worker until the next one is ready.
    """

    def __init__(
        self,
        dispatcher: AsyncDispatcher[Any, Any],
        *,
        apis: Callable[[], Iterable[str]],
        ready: Callable[[], int],
        target: Callable[[], int],
        resize: Callable[[int], Awaitable[None]] | None,
        least: int,
        most: int,
        idle_after_s: float = math.inf,
        is_replacing: Callable[[], bool] = lambda: False,
        log: ServiceLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = ServiceLog("") if log is None else log
        self.decision: Decision | None = None
        self.least, self.most = least, most
        self.idle_after_s = idle_after_s
        self.is_from_zero = self._is_asleep = False
        self._is_wanted = asyncio.Event()
        """Set when a request has arrived while the service was asleep."""
        self._idle_since = clock()
        self._arrivals = 0.0
        self._autoscaler = Autoscaler(max(1, least), most)
        self._dispatcher = dispatcher
        self._apis = apis
        self._ready = ready
        self._target = target
        self._resize = resize
        self._is_replacing = is_replacing
        self._clock = clock
        self._look_at = clock() + LOOK_S
        self._bulk_rows: defaultdict[str, float] = defaultdict(float)
        """By API, the rows of bulk that its goal required so far."""

    async def change_bounds(self, least: int, most: int) -> None:
        """Set new bounds, and start or stop workers until their number is within them."""
        self.least, self.most = least, most
        target = self._autoscaler.change_bounds(max(1, least), most)
        if self._is_asleep and not least:
            return
        self._is_asleep = False
        if self._resize is not None and target != self._target():
            await self._resize(target)

    @property
    def wanted(self) -> int:
        """The number of workers that the traffic needs; the target number while that is unknown.

        It is 0 only while the service is asleep.
        """
        if self._is_asleep:
            return 0
        if self.decision is None or (self.decision.reason.unknown and self.decision.reason.api is None):
            return max(1, self._target())
        return max(1, self.decision.wanted)

    async def run(self) -> None:
        """Count arrivals every second, and decide every :data:`LOOK_S` seconds, until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_wanted.wait(), _COUNT_EVERY_S)
            await self.check()

    async def wake(self) -> None:
        """Start a worker if the service is asleep."""
        if self._is_asleep and self._resize is not None:
            self._is_asleep = False
            self._idle_since = self._clock()
            await self._resize(1)

    async def _sleep(self) -> None:
        """Stop all workers until a request arrives."""
        assert self._resize is not None
        self._is_asleep = self.is_from_zero = True
        self._autoscaler = Autoscaler(1, self.most)
        self.decision = Decision(0, 0, ScalingReason("asleep"))
        self._log.info("stopping all workers: no request has arrived for %g s", self.idle_after_s)
        await self._resize(0)
        # Not before: a worker that dies until then is expected again, which would end the promise. A reload
        # may have woken the service meanwhile.
        if self._is_asleep:
            self._dispatcher.workers_on_demand(self._is_wanted.set)

    def _arrived(self) -> float:
        """Return how many rows have arrived, also those that were refused."""
        samples = map(self._dispatcher.sample, self._apis())
        return sum(sample.arrived_rows + sample.bulk_rows for sample in samples)

    def _is_idle(self, now: float) -> bool:
        """Return True if no request has arrived, waited or run for so long that the service should sleep."""
        arrivals, is_starting = self._arrived(), self._ready() < self._target()
        is_busy = not self._dispatcher.is_empty or is_starting or self._is_replacing()
        if is_busy or arrivals != self._arrivals:
            self._arrivals, self._idle_since = arrivals, now
        return now >= self._idle_since + self.idle_after_s

    async def check(self) -> None:
        """Count arrivals, and decide if a decision is due."""
        now = self._clock()
        # Workers on other machines may have taken the request.
        if self._is_wanted.is_set() or (self._is_asleep and self._arrived() != self._arrivals):
            self._is_wanted.clear()
            self._log.info("starting a worker: a request has arrived")
            await self.wake()
        if self._is_asleep:
            return
        if self.is_from_zero and self._ready():
            self.is_from_zero = False
        if not self.least and self._resize is not None and self._is_idle(now):
            await self._sleep()
            return
        if now < self._look_at:
            # Statistics cost much more than samples: they ask the policies.
            arrived = {name: self._dispatcher.sample(name).arrived_rows for name in self._apis()}
            self._autoscaler.count(arrived, now=now)
            return
        self._look_at = now + LOOK_S
        stats = self._dispatcher.stats()
        demands = self._demands([api for api in stats if not api.rules.workers])
        reserved = sum([api.rules.workers for api in stats])
        ready, target = self._ready(), self._target()
        starting = max(0, target - ready)
        self.decision = self._autoscaler.look(
            demands, running=ready, starting=starting, now=now, reserved=reserved
        )
        if self._resize is not None and self.decision.target != target:
            more = self.decision.target > target
            self._log.info(
                "%s workers, from %d to %d: the traffic needs %d",
                *("starting" if more else "stopping", target, self.decision.target, self.decision.wanted),
            )
            await self._resize(self.decision.target)

    def _demands(self, apis: Iterable[ApiStats]) -> dict[str, ApiDemand]:
        demands = {}
        for api in apis:
            sample = self._dispatcher.sample(api.name)
            demands[api.name] = ApiDemand(
                arrived_rows=sample.arrived_rows,
                estimate=api.estimate,
                goal_s=api.rules.goal_s,
                limit_rows=api.limit_rows,
                transport_s=sample.transport_s,
                smallest_rows=api.smallest_rows,
                concurrency=api.rules.concurrency,
                unit=api.rules.unit,
            )
            goal_s = api.rules.bulk_goal_s
            if api.bulk is not None and goal_s is not None and goal_s < math.inf:
                self._bulk_rows[api.name] += api.bulk.queued_rows / goal_s * LOOK_S
                demands[f"{api.name} (bulk)"] = replace(
                    demands[api.name], arrived_rows=self._bulk_rows[api.name], goal_s=goal_s
                )
        return demands
