"""Retry-After is accurate: clients that obey it get through at twice the load that can be served."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from typing import Any

import pytest

from tests.dispatcher.driver import core_with
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

INTERCEPT_S, SLOPE_S, LIMIT_ROWS, GOAL_S = 0.04, 0.001, 16, 0.3
LASTS_S, WARM_S = 90.0, 30.0


class Population:
    """Twice as many clients as can be served; ``tried`` and ``answered`` count first, second, ... tries.

    Each thinks, sends a request, and when it is shed waits for Retry-After in whole seconds.
    """

    def __init__(self, *, workers: int, think_s: float) -> None:
        self.capacity = workers * LIMIT_ROWS / (INTERCEPT_S + SLOPE_S * LIMIT_ROWS)
        self.tried: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        rules = ApiRules(name="a", goal_s=GOAL_S, max_batch_rows=LIMIT_ROWS)
        self._core = core_with(rules, workers=workers)
        self._think_s = think_s
        self._random = random.Random(3)
        self._order = itertools.count()
        self._events: list[tuple[float, int, int | Batch[Any]]] = []
        self._asked: dict[int, int] = {}
        self._now = 0.0

    def run(self) -> Population:
        """Until the time is over; what happens while it begins does not count."""
        for _ in range(int(2 * self.capacity * (self._think_s + GOAL_S))):
            self._later(self._think_s * self._random.random(), 1)
        while (now := min(self._events[0][0], self._core.next_wakeup())) < LASTS_S:
            self._now = now
            while self._events[0][0] <= now:
                _, number, what = heapq.heappop(self._events)
                if isinstance(what, Batch):
                    self._finish(what)
                else:
                    self._ask(number, what)
            for action in self._core.poll(now):
                if isinstance(action, Batch):
                    self._later(INTERCEPT_S + SLOPE_S * action.rows, action)
                else:
                    assert isinstance(action, Shed)
                    self._refuse(action)
        return self

    def _later(self, delay_s: float, what: int | Batch[Any]) -> None:
        heapq.heappush(self._events, (self._now + delay_s, next(self._order), what))

    def _ask(self, number: int, attempt: int) -> None:
        self._asked[number] = attempt
        self.tried[attempt] += self._now > WARM_S
        shed = self._core.submit(number, api="a", now=self._now)
        if shed is not None:
            self._refuse(shed)

    def _refuse(self, shed: Shed) -> None:
        self._later(
            math.ceil(shed.retry_after_s) + 0.01 * self._random.random(), self._asked.pop(shed.request) + 1
        )

    def _finish(self, start: Batch[Any]) -> None:
        self._core.batch_done(start.number, status="worked", now=self._now)
        for request in start.requests:
            self.answered[self._asked.pop(request)] += self._now > WARM_S
            self._later(self._random.expovariate(1 / self._think_s), 1)


@pytest.mark.long_run
@pytest.mark.parametrize(("workers", "think_s"), [(1, 1.0), (2, 4.0)])
def test_nearly_all_who_obey_get_through_at_the_second_try(workers: int, think_s: float) -> None:
    ran = Population(workers=workers, think_s=think_s).run()

    assert ran.tried[2] > 100
    assert ran.answered[1] / ran.tried[1] > 0.85
    assert ran.answered[2] / ran.tried[2] > 0.8
    assert sum(ran.answered.values()) > 0.95 * ran.capacity * (LASTS_S - WARM_S)
