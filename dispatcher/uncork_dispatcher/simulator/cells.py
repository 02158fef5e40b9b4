"""One cell of an experiment: a model, its workers and its traffic."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

from uncork_dispatcher.rules import SettingError
from uncork_dispatcher.simulator.lengths import Known, RowLengths, most_in_order, row_lengths
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Sources
from uncork_dispatcher.wording import plural

BATCHES = 300
"""Default number of batches per worker that are measured."""
MOST_REQUESTS = 200_000
"""The most requests that measure a cell."""

_MOST_LOAD = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A model, its workers, and either open-loop arrivals (``load``) or a closed loop (``clients``).

    Attributes:
        intercept_ms: the fixed cost of a batch.
        slope_ms: the cost of each row, or of each unit of length if there are ``lengths``.
        prepare_ms: the time of each row in a first stage, as in :class:`ServiceTime`.
        noise_cv: coefficient of variation of batch times.
        workers: number of workers.
        limit_rows: most rows in a batch, or the most that their lengths may add up to.
        goal_ms: the latency goal.
        load: open loop: average rate as a share of :attr:`capacity`, up to 5.
        arrivals: open loop: their kind, see :func:`~uncork_dispatcher.simulator.traffic.open_loop`.
        clients: closed loop: number of clients, which each wait for a response before the next request.
        round_trip_ms: closed loop: from sending a response to receiving the client's next request, ±50 %.
        think_ms: closed loop: the client's think time, added to the round trip, ±50 %.
        request_ms: closed loop: the serial work of gateway and clients on each request.
        transport_ms: transport of a batch to the worker and of its results back, together.
        sources: how the core identifies clients, see :data:`~uncork_dispatcher.simulator.traffic.Sources`.
        groups: the number of groups of requests that may not share a batch. The k-th has 1/k times the
            requests of the first; in a closed loop, each client has one group, and groups are equal.
        lengths: the distribution of row lengths, see
            :func:`~uncork_dispatcher.simulator.lengths.row_lengths`; None: all rows cost the same.
        padding: with lengths: the share of the padding that takes time, as in :class:`ServiceTime`.
        known: with lengths: what the core knows of them.
        bulk_clients: clients of a closed loop that send requests of the second class, without a goal, in
            addition; ``bulk_rows``: the rows of each request. 0: there is one class.
        truncated_at: with lengths: rows are truncated to this length, as in :class:`ServiceTime`.

    Raises:
        ValueError: if a number is out of range, or unless exactly one of ``load`` and ``clients`` is set.
    """

    intercept_ms: float
    slope_ms: float
    prepare_ms: float = 0.0
    noise_cv: float = 0.0
    workers: int = 1
    limit_rows: int = 64
    goal_ms: float = 1000.0
    load: float | None = None
    arrivals: str = "poisson"
    clients: int | None = None
    round_trip_ms: float = 0.5
    think_ms: float = 0.0
    request_ms: float = 0.0
    transport_ms: float = 0.0
    sources: Sources = "clients"
    groups: int = 1
    bulk_clients: int = 0
    bulk_rows: float = 1.0
    lengths: str | None = None
    padding: float = 1.0
    known: Known = "costs"
    truncated_at: float = math.inf

    def __post_init__(self) -> None:
        times = ("intercept_ms", "slope_ms", "prepare_ms", "transport_ms")
        for name in (*times, "round_trip_ms", "think_ms", "request_ms", "noise_cv"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingError(name, says=f" must be 0 or more, got {getattr(self, name):g}")
        if self.intercept_ms + self.slope_ms == 0:
            says = " are both 0: a batch must take some time"
            raise SettingError("intercept_ms", "slope_ms", says=says)
        for name in ("workers", "limit_rows", "goal_ms", "groups", "bulk_rows"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, says=f" must be more than 0, got {getattr(self, name):g}")
        if not 0 <= self.padding <= 1:
            raise SettingError("padding", says=f" must be a share from 0 to 1, got {self.padding:g}")
        if self.lengths is not None:
            row_lengths(self.lengths)
        self._require_traffic()

    def _require_traffic(self) -> None:
        if (self.load is None) == (self.clients is None):
            raise ValueError("set either load (open loop) or clients (closed loop)")
        if self.load is not None and not 0 < self.load <= _MOST_LOAD:
            says = f" must be more than 0 and at most {_MOST_LOAD:g}, got {self.load:g}"
            raise SettingError("load", says=says)
        if self.clients is not None and self.clients < 1:
            raise SettingError("clients", says=f" must be 1 or more, got {self.clients}")

    def __str__(self) -> str:
        noise = f" noise {self.noise_cv:g}" if self.noise_cv else ""
        if self.clients is None:
            traffic = f"{self.arrivals} {self.load:.3g}"
        else:
            traffic = plural(self.clients, "client") + (f" think {self.think_ms:g}" if self.think_ms else "")
            traffic += f" work {self.request_ms:g}" if self.request_ms else ""
        sources = "" if self.sources == "clients" else f" sources {self.sources}"
        groups = f" {self.groups} groups" if self.groups > 1 else ""
        groups += f" bulk {self.bulk_clients} x {self.bulk_rows:g}" if self.bulk_clients else ""
        lengths = f" {self.lengths} padding {self.padding:g}" if self.lengths is not None else ""
        lengths += f" truncated at {self.truncated_at:g}" if self.truncated_at < math.inf else ""
        prepare = f" prepare {self.prepare_ms:g}" if self.prepare_ms else ""
        transport = f" transport {self.transport_ms:g}" if self.transport_ms else ""
        unknown = "" if self.known == "costs" else f" known {self.known}"
        return (
            f"{self.intercept_ms:g}+{self.slope_ms:g}n{prepare}{noise}{lengths} W={self.workers} "
            f"{traffic}{groups}{transport}{sources}{unknown}"
        )

    @property
    def service(self) -> ServiceTime:
        return ServiceTime(
            intercept_s=self.intercept_ms / 1000,
            slope_s=self.slope_ms / 1000,
            prepare_s=self.prepare_ms / 1000,
            padding=0.0 if self.lengths is None else self.padding,
            truncated_at=self.truncated_at,
            noise_cv=self.noise_cv,
        )

    @property
    def row_lengths(self) -> RowLengths | None:
        """The distribution of row lengths; None if all rows cost the same."""
        return None if self.lengths is None else row_lengths(self.lengths)

    @property
    def rows(self) -> Callable[[random.Random], float] | None:
        """A function that draws the rows of a request; None if each has one row."""
        return None

    @property
    def draw_group(self) -> Callable[[int, random.Random], int] | None:
        """A function that draws the group of a request, as in :class:`Scenario`; None if there is one."""
        groups = self.groups
        if groups == 1:
            return None
        if self.clients is not None:
            return lambda client, _: client % groups
        weights = list(accumulate([1 / (group + 1) for group in range(groups)]))
        return lambda _, random_: random_.choices(range(groups), cum_weights=weights)[0]

    @property
    def capacity(self) -> float:
        """The rows per second of all workers with full batches.

        With lengths, of batches in order of arrival, in the size with the highest throughput. If the model
        pads, batches of similar lengths carry more rows, and release-when-free carries fewer under load.
        """
        if (lengths := self.row_lengths) is not None:
            return self.workers * most_in_order(self.service, lengths, limit=self.limit_rows)
        return self.service.capacity(workers=self.workers, limit_rows=self.limit_rows)

    @property
    def without_padding(self) -> tuple[ServiceTime, float]:
        """A service time for unpadded rows of average length, and the most such rows in a batch."""
        mean = 1.0 if (lengths := self.row_lengths) is None else lengths.mean
        service = replace(self.service, slope_s=self.service.slope_s * mean, padding=0.0)
        return service, max(1.0, self.limit_rows / mean)

    @property
    def rate(self) -> float:
        """Rows per second: the offered load, or an estimate of the most that the clients can send."""
        if self.load is not None:
            return self.load * self.capacity
        assert self.clients is not None
        busy = min(self.workers, self.clients)
        service, limit = self.without_padding
        rows = min(limit, self.clients / busy)
        pause_s = (self.round_trip_ms + self.think_ms) / 1000
        return min(busy * rows / service.mean(rows), self.clients / (service.mean(rows) + pause_s))


def requests_to_measure(cell: Cell, *, batches: int = BATCHES) -> int:
    """Return how many requests make about ``batches`` batches per worker under a policy that holds little.

    The assumed batch size is 1.5 times the smallest that keeps up, plus 2 rows; in a closed loop, twice an
    equal share of the clients, plus 2 rows; never above the limit. Rows with lengths count as unpadded rows
    of average length. The result is between 2,000 and 200,000; for on/off traffic it makes whole cycles, at
    least 3 if these stay below 200,000, otherwise 1. A policy with larger batches (a long fixed wait) runs
    fewer batches: see :class:`Measured`.
    """
    service, limit = cell.without_padding
    if cell.clients is not None:
        busy = min(cell.workers, cell.clients)
        rows = min(limit, cell.clients, 2 * cell.clients / busy + 2)
        return _bounded(batches * busy * rows)
    assert cell.load is not None
    rows = limit
    if cell.load < 1:
        smallest = service.estimate.keep_up_rows(cell.rate, workers=cell.workers)
        rows = min(rows, 1.5 * smallest + 2)
    count = _bounded(batches * cell.workers * rows * max(1.0, cell.load))
    if cell.arrivals != "onoff":
        return count
    # On/off traffic has its load only on average over whole cycles of two phases of 400 ms.
    cycle = cell.rate * 0.8
    cycles = max(3, math.ceil(count / cycle))
    return round(cycle * min(cycles, max(1, math.floor(MOST_REQUESTS / cycle))))


def _bounded(count: float) -> int:
    # With 2000 requests, 20 are slower than the 99th percentile.
    return round(min(max(count, 2_000), MOST_REQUESTS))
