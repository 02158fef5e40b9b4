"""Helpers of the tests of the core: entries, batches, and a driver in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from tests.dispatcher.batches import batch_of
from uncork_dispatcher.actions import Abandon, Action, Expired, GoalOutOfReach, Lost, Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.workers.slots import Slots


def entry(
    request: int = 1,
    *,
    arrival: float = 0.0,
    rows: float = 1,
    size_bytes: int = 0,
    deadline: float = 1.0,
    queue: RequestQueue | None = None,
    length: float = 1,
) -> Entry:
    """A request as the core keeps it; one that nobody's client gives up."""
    home = queue if queue is not None else RequestQueue("a", None)
    cost = rows * length
    return Entry(
        request, request, arrival, cost, size_bytes, deadline, math.inf, home, (rows, length, length, cost)
    )


def running(
    *,
    batch: int = 1,
    worker: int = 0,
    rows: int = 1,
    started: float = 0.0,
    predicted_s: float = 0.0,
    gives_up_at: float = math.inf,
    transport_s: float = 0.0,
    spread_s: float = 0.0,
    arrivals: Sequence[float] = (0.0,),
) -> Batch[Any]:
    made = batch_of(
        *range(1, 1 + len(arrivals)),
        number=batch,
        worker=worker,
        rows=rows,
        started=started,
        predicted_s=predicted_s,
        gives_up_at=gives_up_at,
        transport_s=transport_s,
        spread_s=spread_s,
    )
    for one, arrival in zip(made.entries, arrivals, strict=True):
        one.arrival = arrival
    return made


def next_worker(slots: Slots) -> int:
    """Return the worker that has been idle longest: all are equally fast."""
    return slots.shares.next_idle(lambda _: 1.0, now=0.0)


def core_with(*rules: ApiRules, workers: int = 1) -> Dispatcher:
    """A core with these apis and ``workers`` idle workers, numbered from 0, at time 0."""
    core = Dispatcher()
    for each in rules:
        core.set_api(each)
    for worker in range(workers):
        core.worker_ready(worker, now=0.0)
    return core


def starts(actions: Iterable[Action]) -> list[Batch[Any]]:
    return [action for action in actions if isinstance(action, Batch)]


def poll_all(core: Dispatcher, now: float) -> list[Action]:
    """Poll until there is nothing more to do."""
    actions = []
    while more := core.poll(now):
        actions += more
    return actions


def submit_all(core: Dispatcher, *requests: Any, api: str, now: float = 0.0) -> list[Batch[Any]]:
    """Queue requests, and return the batches that start."""
    for request in requests:
        core.submit(request, api=api, now=now)
    return starts(poll_all(core, now))


def done(core: Dispatcher, batch: Batch[Any], now: float) -> list[Batch[Any]]:
    """End a batch, and return the batches that start."""
    assert core.batch_done(batch.number, status="worked", now=now)
    return starts(poll_all(core, now))


def start_one(core: Dispatcher, request: int, *, now: float, api: str = "a") -> Batch[Any]:
    """Submit one request to a core with an idle worker, and return the batch that it goes in."""
    assert core.submit(request, api=api, now=now) is None
    [start] = core.poll(now)
    assert isinstance(start, Batch)
    return start


def teach(core: Dispatcher, seconds: float, *, batches: int = 5, api: str = "a", now: float = 0.0) -> float:
    """Let batches of one row take ``seconds`` each, one after another; returns when the last is done."""
    for number in range(batches):
        start = start_one(core, 900_000 + number, now=now, api=api)
        now += seconds
        assert core.batch_done(start.number, status="worked", now=now)
        assert core.poll(now) == []
    return now


class Arrival(NamedTuple):
    """A request that will come at ``at`` seconds."""

    at: float
    api: str = "a"
    rows: int = 1
    key: Hashable = None
    flow: Hashable = None


class Driver:
    """Drives a core through arrivals, with workers that take ``seconds(batch)`` for each batch.

    As the shell does: everything that happens at one instant comes in, then one poll. The results are by
    the arrival's place in the list.
    """

    def __init__(
        self, core: Dispatcher, arrivals: list[Arrival], seconds: Callable[[Batch[Any]], float]
    ) -> None:
        self.latency: dict[int, float] = {}
        self.refused: dict[int, Shed] = {}
        self.warnings: list[GoalOutOfReach] = []
        self.batches: list[tuple[float, Batch[Any]]] = []
        self._core = core
        self._arrivals = arrivals
        self._seconds = seconds
        self._order = itertools.count()
        self._events: list[tuple[float, int, int | Batch[Any]]] = []
        for number, arrival in enumerate(arrivals):
            self._later(arrival.at, number)

    def run(self) -> Driver:
        """Until everything is over."""
        while (now := min(self._next_event(), self._core.next_wakeup())) != math.inf:
            while self._next_event() == now:
                self._happens(heapq.heappop(self._events)[2], now)
            while actions := self._core.poll(now):
                for action in actions:
                    self._execute(action, now)
        return self

    def _later(self, at: float, what: int | Batch[Any]) -> None:
        heapq.heappush(self._events, (at, next(self._order), what))

    def _next_event(self) -> float:
        return self._events[0][0] if self._events else math.inf

    def _happens(self, what: int | Batch[Any], now: float) -> None:
        if isinstance(what, Batch):
            assert self._core.batch_done(what.number, status="worked", now=now)
            self.latency |= {one: now - self._arrivals[one].at for one in what.requests}
            return
        _, api, rows, key, flow = self._arrivals[what]
        refused = self._core.submit(what, api=api, key=key, rows=rows, flow=flow, now=now)
        if refused is not None:
            self.refused[what] = refused

    def _execute(self, action: Action, now: float) -> None:
        match action:
            case Batch():
                self.batches.append((now, action))
                self._later(now + self._seconds(action), action)
            case Shed(request):
                self.refused[request] = action
            case GoalOutOfReach():
                self.warnings.append(action)
            case Abandon() | Lost() | Expired():
                raise AssertionError(f"these workers neither hang nor die, and clients wait: {action}")
