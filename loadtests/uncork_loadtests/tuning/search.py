"""Workers and batch sizes that keep a goal, by simulation of the dispatcher's core in virtual time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uncork_dispatcher.simulator import Cell
from uncork_dispatcher.simulator import measure as simulate
from uncork_dispatcher.wording import plural
from uncork_loadtests.traffic.plan import recorded
from uncork_loadtests.tuning.batch_times import Line

WANTED = 0.99
"""Share of requests that must be answered within the goal."""

_POLICY = "cork"
_CAPS = 4
_BISECTIONS = 7
_LOWEST_LOAD = 0.01
# Among caps with a p99 this close to the best, the largest wins: it has more capacity.
_AS_GOOD = 1.05


@dataclass(frozen=True, kw_only=True)
class Model:
    """The measured service, and the goal to keep."""

    line: Line
    rows_per_request: int
    overhead_ms: float
    """Latency of a request besides queue and batch."""
    goal_ms: float
    largest: int
    """Largest batch to propose, in rows."""
    concurrency: int = 1
    """Batches that a worker runs at once."""
    arrivals: str = "poisson"
    seed: int = 1
    requests: int = 10_000
    """Least number simulated per setting; a recording is simulated in whole passes."""

    @property
    def mb_max_latency(self) -> float:
        """The goal minus the overhead, in tenths of a millisecond."""
        return int((self.goal_ms - self.overhead_ms) * 10) / 10


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Latency of clients, predicted or measured. None: too few responses."""

    p50_ms: float | None
    p99_ms: float | None
    in_goal: float
    batch_rows: float | None


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Settings, and the prediction for them at a rate."""

    workers: int
    mb_max_batch_size: int
    mb_max_latency: float
    rate: float
    """Requests per second."""
    capacity: float
    """Requests per second in full batches."""
    predicted: Figures

    @property
    def met(self) -> bool:
        """True if enough requests are answered within the goal."""
        return self.predicted.in_goal >= WANTED


def caps(model: Model) -> list[int]:
    """Return the batch sizes to try, rising: the largest powers of two that fit within the goal.

    Empty if not even one request can be answered in time.
    """
    powers = [1 << power for power in range(model.largest.bit_length())]
    possible = {model.largest, *powers, model.rows_per_request}
    within = [
        rows
        for rows in sorted(possible)
        if model.rows_per_request <= rows <= model.largest
        and model.line.milliseconds(rows) < model.mb_max_latency
    ]
    return within[-_CAPS:]


def capacity(model: Model, *, workers: int, cap: int) -> float:
    """Return the requests per second of workers that run full batches only."""
    slots, requests = workers * model.concurrency, cap // model.rows_per_request
    return slots * requests / model.line.milliseconds(requests * model.rows_per_request) * 1000


def predict(model: Model, *, rate: float, workers: int, cap: int) -> Proposal:
    """Simulate one setting at a rate; raise ValueError if the rate is more than five times the capacity."""
    carried = capacity(model, workers=workers, cap=cap)
    cell = Cell(
        intercept_ms=model.line.intercept_ms,
        slope_ms=model.line.slope_ms * model.rows_per_request,
        noise_cv=model.line.noise_cv,
        workers=workers * model.concurrency,
        limit_rows=cap // model.rows_per_request,
        goal_ms=model.mb_max_latency,
        arrivals=model.arrivals,
        load=rate / carried,
    )
    # The parts of a recording have different rates.
    whole = len(recorded(model.arrivals)) or 1
    requests = math.ceil(model.requests / whole) * whole
    seen = simulate(cell, _POLICY, model.seed, requests=requests)
    # The client's latency, and its goal, exceed the simulated ones by the overhead.
    return Proposal(
        workers=workers,
        mb_max_batch_size=cap,
        mb_max_latency=model.mb_max_latency,
        rate=rate,
        capacity=carried,
        predicted=Figures(
            p50_ms=seen.p50_ms + model.overhead_ms if seen.answered else None,
            p99_ms=seen.p99_ms + model.overhead_ms if seen.answered else None,
            in_goal=seen.in_goal if seen.answered else 0.0,
            batch_rows=seen.batch_rows * model.rows_per_request if seen.batches else None,
        ),
    )


def smallest(model: Model, *, rate: float, max_workers: int, tell: Callable[[str], None]) -> Proposal | None:
    """Return the fewest workers that keep the goal at a rate, with their best cap.

    If none keep it, return the nearest setting; None if no setting has the capacity.
    """
    tried: list[Proposal] = []
    for workers in range(1, max_workers + 1):
        tell(f"simulating {plural(workers, 'worker')}")
        settings = [
            predict(model, rate=rate, workers=workers, cap=cap)
            for cap in caps(model)
            if capacity(model, workers=workers, cap=cap) > rate
        ]
        if kept := [one for one in settings if one.met]:
            return _best(kept)
        tried += settings
    return max(tried, key=lambda one: one.predicted.in_goal, default=None)


def _best(kept: Sequence[Proposal]) -> Proposal:
    def p99(one: Proposal) -> float:
        return one.predicted.p99_ms or 0.0

    limit_ms = _AS_GOOD * min(map(p99, kept))
    return max((one for one in kept if p99(one) <= limit_ms), key=lambda one: one.mb_max_batch_size)


def most(model: Model, *, workers: int) -> Proposal | None:
    """Return the highest rate at which the workers keep the goal; None if there is none."""
    possible = sorted(caps(model), reverse=True)
    if not possible:
        return None
    high = max(capacity(model, workers=workers, cap=cap) for cap in possible)
    low = _LOWEST_LOAD * high
    best = _kept(model, possible, rate=low, workers=workers)
    for _ in range(_BISECTIONS if best else 0):
        middle = (low + high) / 2
        kept = _kept(model, possible, rate=middle, workers=workers)
        if kept is None:
            high = middle
        else:
            low, best = middle, kept
    return best


def _kept(model: Model, possible: Sequence[int], *, rate: float, workers: int) -> Proposal | None:
    """Return the first cap that keeps the goal."""
    tried = (
        predict(model, rate=rate, workers=workers, cap=cap)
        for cap in possible
        if capacity(model, workers=workers, cap=cap) > rate
    )
    return next((one for one in tried if one.met), None)
