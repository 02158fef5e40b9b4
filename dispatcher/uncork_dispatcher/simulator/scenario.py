"""The input of a simulation: a model, its workers and their losses, and its traffic."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from uncork_dispatcher.simulator.lengths import Known
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients, Sources

# When a machine dies, its gateway hears of its workers one after another, this many seconds apart.
_NOTICED_APART_S = (0.001, 0.020)


class Loss(NamedTuple):
    """A worker that dies at ``at`` and is ready again at ``back_at`` (seconds; infinity for never)."""

    worker: int
    at: float
    back_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The input of one simulation. Times are in seconds.

    Attributes:
        service: how long batches take.
        arrivals: open loop: the arrival times, ascending. Closed loop: its clients.
        workers: number of workers, all ready at 0.
        hosts: number of hosts, to which the workers are dealt in turn: worker ``w`` is on host ``w % hosts``.
        limit_rows: most rows in a batch.
        goal_s: the latency goal.
        policy: name of the policy, as for ``@api``.
        requests: closed loop: total number of requests. An open loop has one for each arrival.
        rows: draws the number of rows of a request, all equally long; None: always 1.
        lengths: draws the length of a request's only row, which is its cost; replaces ``rows``. Requests
            have the same lengths under every policy.
        known: what the core knows of the lengths.
        groups: draws the group of a request, from the number of its client or, in an open loop, of its
            arrival; None: requests have no groups.
        sources: how the core identifies clients.
        transport_s: transport of a batch to the worker and of its results back, together.
        timer_quantum_s: timers fire at multiples of this; 0: at the exact time.
        bulk: the clients that send requests of the second class, as long as others arrive.
        bulk_rows: the rows of each of their requests.
        bulk_goal_s: the goal of the second class, infinity without; None: there is one class.
        losses: the workers that die, and when.
        seed: seed of all random numbers in the run; arrivals given as times are not drawn.

    Raises:
        ValueError: if a number is out of range, arrivals do not ascend, or a lost worker does not exist.
    """

    service: ServiceTime
    arrivals: Sequence[float] | Clients
    workers: int = 1
    hosts: int = 1
    limit_rows: int = 64
    goal_s: float = 1.0
    policy: str = "cork"
    requests: int = 20_000
    rows: Callable[[random.Random], float] | None = None
    lengths: Callable[[random.Random], float] | None = None
    known: Known = "costs"
    groups: Callable[[int, random.Random], int] | None = None
    sources: Sources = "clients"
    transport_s: float = 0.0
    timer_quantum_s: float = 0.0
    bulk: Clients | None = None
    bulk_rows: float = 1.0
    bulk_goal_s: float | None = math.inf
    losses: tuple[Loss, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1 or self.requests < 0:
            raise ValueError(f"need at least 1 worker and 0 requests, got {self.workers} and {self.requests}")
        if not 1 <= self.hosts <= self.workers:
            raise ValueError(f"each of the {self.hosts} hosts must have a worker, there are {self.workers}")
        for name in ("transport_s", "timer_quantum_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}")
        if not isinstance(self.arrivals, Clients):
            if not all(0 <= time < math.inf for time in self.arrivals):
                raise ValueError("arrivals must be finite times of at least 0 s")
            if any(after < before for before, after in pairwise(self.arrivals)):
                raise ValueError("arrivals must be in ascending order")
        for loss in self.losses:
            if not 0 <= loss.worker < self.workers or not 0 <= loss.at <= loss.back_at:
                raise ValueError(f"{loss}: the worker must exist, and be ready again after it is lost")


def host_death(
    host: int, *, workers: int, hosts: int, at: float, random_: random.Random, away_s: float = math.inf
) -> tuple[Loss, ...]:
    """Return the losses of all workers of a host that dies at ``at``.

    The first worker is lost at ``at``, the others follow in random order, 1 to 20 ms apart. Each is ready
    again ``away_s`` seconds after its loss. ``workers`` and ``hosts`` are the numbers of the scenario.
    """
    lost = list(range(host, workers, hosts))
    random_.shuffle(lost)
    losses = []
    for worker in lost:
        losses.append(Loss(worker, at, at + away_s))
        at += random_.uniform(*_NOTICED_APART_S)
    return tuple(losses)
