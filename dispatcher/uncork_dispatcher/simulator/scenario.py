"""The input of a simulation (a model, its workers and their losses, and its traffic) and its result."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uncork_dispatcher.actions import Shed
from uncork_dispatcher.simulator.lengths import Known
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients, Sources


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
        response_s: how long the gateway writes one response; meanwhile it reads no request.
        bulk: the clients that send requests of the second class, as long as others arrive.
        bulk_rows: the rows of each of their requests.
        bulk_goal_s: the goal of the second class, infinity without; None: there is one class.
        losses: the workers that die, and when.
        seed: seed of all random numbers in the run; arrivals given as times are not drawn.
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
    response_s: float = 0.0
    bulk: Clients | None = None
    bulk_rows: float = 1.0
    bulk_goal_s: float | None = math.inf
    losses: tuple[Loss, ...] = ()
    seed: int = 1


class Answered(NamedTuple):
    """One answered request; ``length`` is the length of its row, 1 if the scenario has no lengths."""

    arrival: float
    finish: float
    length: float = 1.0
    bulk: bool = False


class SimulatedBatch(NamedTuple):
    """One batch that completed; ``started`` and ``seconds`` describe its execution, without transport.

    ``rows`` is the number of rows, or their total length. ``padded`` is the total length if every row were
    as long as the longest.
    """

    worker: int
    started: float
    seconds: float
    rows: float
    padded: float
    requests: int
    reason: str
    predicted_s: float


@dataclass(slots=True)
class Run:
    """The events of a run, each list in the order in which batches or requests ended."""

    answered: list[Answered] = field(default_factory=list)
    batches: list[SimulatedBatch] = field(default_factory=list)
    shed: list[tuple[float, Shed]] = field(default_factory=list)
    cut_off: list[float] = field(default_factory=list)
    """Arrivals of the requests of batches that were lost with their worker."""
    lost: int = 0
    """Requests that failed: lost with a worker and not retried, or past the timeout of their batch."""
