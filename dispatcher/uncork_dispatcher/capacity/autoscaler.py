"""Decides how many workers to run, between two bounds.

``workers_needed.py`` computes the wanted number, from 1.2 times the highest average arrival rate over 5 s of
the last minute; before a worker is stopped, of the last 5 minutes.

* Up: to the wanted number, if two looks in a row want more workers than the target.
* Down: by one, if all looks of 30 s want fewer and no worker is starting.

Up is faster than down because traffic grows faster than workers start, and because a superfluous worker
costs less than shed requests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from uncork_dispatcher.capacity.arrival_history import HISTORY_S, LOOK_S, ArrivalHistory
from uncork_dispatcher.capacity.workers_needed import Load, Need, ScalingLimit, workers_needed
from uncork_dispatcher.learning.estimator import Estimate

_RECENT_S = 60.0
_DOWN_S = 30.0

ScalingState = Literal[
    "enough",
    "confirming",
    "up",
    "at_most",
    "down",
    "waiting",
    "recent_peak",
    "starting",
    "at_least",
    "unknown",
    "asleep",
]
"""Why the target number of workers has changed or stays.

* ``enough``: the target is the wanted number.
* ``confirming``: more workers are wanted; the next look decides.
* ``up``: the target has been raised.
* ``at_most``: more workers are wanted than the upper bound allows.
* ``down``: the target has been lowered by one.
* ``waiting``: fewer workers are wanted, but not for 30 s yet.
* ``recent_peak``: fewer workers are wanted now, but not for the highest rate of the last 5 minutes.
* ``starting``: fewer workers are wanted, but not all workers are ready.
* ``at_least``: fewer workers are wanted than the lower bound allows.
* ``unknown``: the need of an API with arrivals is unknown, so no worker is stopped.
* ``asleep``: no worker runs, because no request has arrived for a while; not of :class:`Autoscaler`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDemand:
    """The arrivals, estimate and limits of one API, for :meth:`Autoscaler.look`.

    Attributes:
        arrived_rows: rows that have arrived since the start, shed requests included.
        estimate: estimate of the batch time in an average worker.
        goal_s: the latency goal in seconds.
        limit_rows: most rows in a batch.
        transport_s: seconds that a batch spends on the way to the worker and back.
        smallest_rows: rows of the smallest request; 0 if unknown.
        concurrency: how many of its batches a worker runs at once, beside the other APIs; 1: it shares the
            workers with them.
        unit: what rows are counted in; arrivals in another unit are forgotten.
    """

    arrived_rows: float
    estimate: Estimate
    goal_s: float
    limit_rows: float
    transport_s: float = 0.0
    smallest_rows: float = 0.0
    concurrency: int = 1
    unit: str = ""


class ScalingReason(NamedTuple):
    """Why a decision has its target.

    Attributes:
        state: why the target has changed or stays.
        api: the API that takes most of the workers' time; None without arrivals or known estimates.
        limit: what decides how much time that API takes; None if ``api`` is None.
        wait_s: seconds until a worker is stopped, if nothing changes; None if none will be.
        unknown: the APIs with arrivals whose need is unknown.
    """

    state: ScalingState
    api: str | None = None
    limit: ScalingLimit | None = None
    wait_s: float | None = None
    unknown: tuple[str, ...] = ()


class Decision(NamedTuple):
    """The result of :meth:`Autoscaler.look`.

    Attributes:
        wanted: workers that the traffic needs, headroom included, regardless of the bounds; the target while
            the need of no API is known.
        target: workers to run, within the bounds.
        reason: why ``target`` differs from ``wanted``, and what decides ``wanted``.
    """

    wanted: int
    target: int
    reason: ScalingReason


class _Api:
    """The recent arrivals of one API, and the recent spreads of its estimate."""

    def __init__(self) -> None:
        self.history = ArrivalHistory()
        self.unit: str | None = None
        """The unit of the rows; None before the first look."""
        self.spreads: deque[float] = deque(maxlen=round(_RECENT_S / LOOK_S))

    def load(self, name: str, demand: ApiDemand, *, seconds: float) -> Load:
        """Return the load to plan for: the highest of the last ``seconds`` seconds, with headroom."""
        return Load(
            api=name,
            rate_rows=1.2 * self.history.highest_rate(seconds),
            # The spread of an estimate is that of about ten batches: it varies more than the need.
            estimate=demand.estimate._replace(spread=fmean(self.spreads)),
            goal_s=demand.goal_s,
            limit_rows=demand.limit_rows,
            transport_s=demand.transport_s,
            smallest_rows=demand.smallest_rows or 1.0,
            dispersion=self.history.dispersion(seconds),
        )


class Autoscaler:
    """Decides how many workers to run. Times are arguments, in seconds, and must not go back.

    Args:
        least, most: bounds of the number of workers.
        target: the number of workers at first; ``least`` if not given.

    Raises:
        ValueError: if the bounds are not ``1 <= least <= most``.
    """

    def __init__(self, least: int, most: int, *, target: int | None = None) -> None:
        self._target = least if target is None else target
        self.change_bounds(least, most)
        self._apis: dict[str, _Api] = {}
        self._wanted_before = 0
        """The number that the previous look wanted, within the bounds."""
        self._fewer_since: float | None = None
        """Since when every look has wanted fewer workers."""

    def change_bounds(self, least: int, most: int) -> int:
        """Set other bounds, and return the target within them; raises as the constructor."""
        if not 1 <= least <= most:
            raise ValueError(
                f"the least number of workers must be from 1 to the most, got {least} and {most}"
            )
        self._least, self._most = least, most
        self._target = self._bounded(self._target)
        return self._target

    def count(self, arrived_rows: Mapping[str, float], *, now: float) -> None:
        """Note how many rows have arrived at each API since the start. Call it every second to see bursts."""
        for name, rows in arrived_rows.items():
            self._apis.setdefault(name, _Api()).history.count(rows, now=now)

    def look(
        self,
        demands: Mapping[str, ApiDemand],
        *,
        running: int,
        starting: int,
        now: float,
        reserved: int = 0,
    ) -> Decision:
        """Decide how many workers to run; call it every :data:`LOOK_S` seconds.

        Args:
            demands: every API that shares workers, by its name; the history of other APIs is forgotten.
            running: workers that are ready.
            starting: workers that were started and are not ready yet.
            now: the time.
            reserved: workers in addition, which other APIs have reserved.
        """
        self._apis = {
            name: api
            for name, api in self._apis.items()
            if name in demands and api.unit in (None, demands[name].unit)
        }
        self.count({name: demand.arrived_rows for name, demand in demands.items()}, now=now)
        for name, demand in demands.items():
            self._apis[name].unit = demand.unit
            self._apis[name].spreads.append(demand.estimate.spread)
        need, unknown = self._need(demands, seconds=_RECENT_S, reserved=reserved)
        lasting, _ = self._need(demands, seconds=HISTORY_S, reserved=reserved)
        if self._grow(need):
            state: ScalingState = "up"
        elif max(need.workers, lasting.workers) >= self._target or unknown:
            state = self._keep(need, is_known=not unknown)
        else:
            state = self._shrink(is_starting=starting > 0 or running < self._target, now=now)
        wait_s = None if self._fewer_since is None else max(0.0, self._fewer_since + _DOWN_S - now)
        reason = ScalingReason(state, need.api, need.limit if need.api else None, wait_s, unknown)
        return Decision(self._target if unknown and need.api is None else need.workers, self._target, reason)

    def _need(
        self, demands: Mapping[str, ApiDemand], *, seconds: float, reserved: int
    ) -> tuple[Need, tuple[str, ...]]:
        """Return the need by the last ``seconds`` seconds, and the omitted APIs, which have no estimate."""
        loads = [self._apis[name].load(name, demand, seconds=seconds) for name, demand in demands.items()]
        unknown = tuple(load.api for load in loads if load.rate_rows > 0 and not load.is_known)
        known = [load for load in loads if load.api not in unknown]
        shared = workers_needed(load for load in known if demands[load.api].concurrency == 1)
        needs = [shared._replace(workers=shared.workers + reserved)]
        for load in known:
            if (slots := demands[load.api].concurrency) > 1:
                need = workers_needed([load])
                needs.append(need._replace(workers=math.ceil(need.workers / slots)))
        return max(needs, key=lambda need: (need.workers, need.api is not None)), unknown

    def _grow(self, need: Need) -> bool:
        """Raise the target if two looks in a row want more workers; return True if it rises."""
        wanted, wanted_before = self._bounded(need.workers), self._wanted_before
        self._wanted_before = wanted
        if min(wanted, wanted_before) <= self._target:
            return False
        self._target, self._fewer_since = wanted, None
        return True

    def _keep(self, need: Need, *, is_known: bool) -> ScalingState:
        """Return the reason to keep the target, and restart the wait of :meth:`_shrink`."""
        self._fewer_since = None
        if self._bounded(need.workers) > self._target:
            return "confirming"
        if not is_known:
            return "unknown"
        if need.workers < self._target:
            return "recent_peak"
        return "enough" if need.workers == self._target else "at_most"

    def _shrink(self, *, is_starting: bool, now: float) -> ScalingState:
        """Lower the target by one if all looks of 30 s want fewer workers; return the new state."""
        if self._target == self._least:
            self._fewer_since = None
            return "at_least"
        if is_starting:
            self._fewer_since = None
            return "starting"
        if self._fewer_since is None:
            self._fewer_since = now
        if now < self._fewer_since + _DOWN_S:
            return "waiting"
        self._target -= 1
        self._fewer_since = now
        return "down"

    def _bounded(self, workers: int) -> int:
        return min(max(workers, self._least), self._most)
