"""Decides how many workers to run, between a least and a most number.

The number wanted is that of ``workers_needed.py``, for more arrivals than there are: 1.2 times the highest
average over 5 s of the last minute. For stopping workers, of the last 5 minutes.

* Up: to the number wanted, if two looks in a row want more than there are.
* Down: by one, if all looks of 30 s want fewer and no worker is starting.

Traffic grows faster than workers start, and a worker too many costs less than requests that are shed; hence
the difference between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from uncork_dispatcher.capacity.arrival_history import HISTORY_S, ArrivalHistory
from uncork_dispatcher.capacity.workers_needed import Load, Need, ScalingLimit, workers_needed
from uncork_dispatcher.learning.estimator import Estimate

LOOK_S = 5.0
"""Seconds between two looks."""

_HEADROOM = 1.2
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
]
"""What the autoscaler does.

* ``enough``: the target is what is wanted.
* ``confirming``: more are wanted; the next look decides.
* ``up``: the target has been raised.
* ``at_most``: more are wanted than allowed.
* ``down``: the target has been lowered by one.
* ``waiting``: fewer are wanted, but not for 30 s yet.
* ``recent_peak``: fewer are wanted now, but a peak of the last 5 minutes would need the others.
* ``starting``: fewer are wanted, but not all workers are ready.
* ``at_least``: fewer are wanted than allowed.
* ``unknown``: the need of an API with arrivals is unknown, so no worker is stopped.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDemand:
    """One API at one moment.

    Attributes:
        arrived_rows: rows since the start, shed ones included.
        estimate: of the batch time in an average worker.
        goal_s: the latency goal in seconds.
        limit_rows: most rows in a batch.
        transport_s: seconds on the way to the worker and back.
        smallest_rows: rows of the smallest request; 0 if unknown.
    """

    arrived_rows: float
    estimate: Estimate
    goal_s: float
    limit_rows: float
    transport_s: float = 0.0
    smallest_rows: float = 0.0


class ScalingReason(NamedTuple):
    """Why there are as many workers as there are.

    Attributes:
        state: what the autoscaler does.
        api: the API that takes most of the workers' time; None without arrivals, or if none is known.
        limit: what decides its share; None if ``api`` is.
        wait_s: seconds until a worker is stopped, if nothing changes; None if no worker will be.
        unknown: the APIs with arrivals whose need is not known.
    """

    state: ScalingState
    api: str | None = None
    limit: ScalingLimit | None = None
    wait_s: float | None = None
    unknown: tuple[str, ...] = ()


class Decision(NamedTuple):
    """The answer to a look.

    Attributes:
        wanted: workers that the traffic needs, with the headroom, regardless of the bounds; the target while
            the need of no API is known.
        target: workers to run, within the bounds.
        reason: why these differ, and what decides ``wanted``.
    """

    wanted: int
    target: int
    reason: ScalingReason


class _Api:
    """What is remembered of one API."""

    def __init__(self) -> None:
        self.history = ArrivalHistory()
        self.spreads: deque[float] = deque(maxlen=round(_RECENT_S / LOOK_S))

    def load(self, name: str, demand: ApiDemand, *, seconds: float) -> Load:
        """Return the load for which there must be workers, after the arrivals of the last ``seconds``."""
        return Load(
            api=name,
            rate_rows=_HEADROOM * self.history.highest_rate(seconds),
            # The spread of an estimate is that of about ten batches: it varies more than the need.
            estimate=demand.estimate._replace(spread=fmean(self.spreads)),
            goal_s=demand.goal_s,
            limit_rows=demand.limit_rows,
            transport_s=demand.transport_s,
            smallest_rows=demand.smallest_rows or 1.0,
            dispersion=self.history.dispersion(seconds),
        )


class Autoscaler:
    """Decides how many workers to run. It has no clock: times are arguments, in seconds, never going back.

    Args:
        least, most: bounds of the number of workers.
        target: how many there are at first; ``least`` if not given.

    Raises:
        ValueError: if the bounds are not ``1 <= least <= most``.
    """

    def __init__(self, least: int, most: int, *, target: int | None = None) -> None:
        self._target = least if target is None else target
        self.change_bounds(least, most)
        self._apis: dict[str, _Api] = {}
        self._wanted_before = 0
        """The bounded number that the look before wanted."""
        self._fewer_since: float | None = None
        """Since when every look has wanted fewer workers."""

    def change_bounds(self, least: int, most: int) -> int:
        """Set other bounds, and return the target within them; what is remembered stays.

        Raises:
            ValueError: as for the class.
        """
        if not 1 <= least <= most:
            raise ValueError(
                f"the least number of workers must be from 1 to the most, got {least} and {most}"
            )
        self._least, self._most = least, most
        self._target = self._bounded(self._target)
        return self._target

    def count(self, arrived_rows: Mapping[str, float], *, now: float) -> None:
        """Note how many rows have arrived at each API since the start. Once a second shows bursts."""
        for name, rows in arrived_rows.items():
            self._apis.setdefault(name, _Api()).history.count(rows, now=now)

    def look(self, demands: Mapping[str, ApiDemand], *, running: int, starting: int, now: float) -> Decision:
        """Decide, :data:`LOOK_S` seconds after the look before.

        Args:
            demands: every API by its name; the history of others is forgotten.
            running: workers that are ready.
            starting: workers that were started and are not ready yet.
            now: the time.
        """
        self._apis = {name: api for name, api in self._apis.items() if name in demands}
        self.count({name: demand.arrived_rows for name, demand in demands.items()}, now=now)
        for name, demand in demands.items():
            self._apis[name].spreads.append(demand.estimate.spread)
        need, unknown = self._need(demands, seconds=_RECENT_S)
        lasting, _ = self._need(demands, seconds=HISTORY_S)
        if self._grow(need):
            state: ScalingState = "up"
        elif max(need.workers, lasting.workers) >= self._target or unknown:
            state = self._keep(need, is_known=not unknown)
        else:
            state = self._shrink(is_starting=starting > 0 or running < self._target, now=now)
        wait_s = None if self._fewer_since is None else max(0.0, self._fewer_since + _DOWN_S - now)
        reason = ScalingReason(state, need.api, need.limit if need.api else None, wait_s, unknown)
        return Decision(self._target if unknown and need.api is None else need.workers, self._target, reason)

    def _need(self, demands: Mapping[str, ApiDemand], *, seconds: float) -> tuple[Need, tuple[str, ...]]:
        """Return what the known APIs need after the last ``seconds``, and the APIs that are not known."""
        loads = [self._apis[name].load(name, demand, seconds=seconds) for name, demand in demands.items()]
        unknown = tuple(load.api for load in loads if load.rate_rows > 0 and not load.is_known)
        need = workers_needed([load for load in loads if load.api not in unknown])
        assert need is not None
        return need, unknown

    def _grow(self, need: Need) -> bool:
        """Raise the target to what is wanted if the look before wanted more too; return whether it rises."""
        wanted, wanted_before = self._bounded(need.workers), self._wanted_before
        self._wanted_before = wanted
        if min(wanted, wanted_before) <= self._target:
            return False
        self._target, self._fewer_since = wanted, None
        return True

    def _keep(self, need: Need, *, is_known: bool) -> ScalingState:
        """Return why the target stays, where it is not for lack of time."""
        self._fewer_since = None
        if self._bounded(need.workers) > self._target:
            return "confirming"
        if not is_known:
            return "unknown"
        if need.workers < self._target:
            return "recent_peak"
        return "enough" if need.workers == self._target else "at_most"

    def _shrink(self, *, is_starting: bool, now: float) -> ScalingState:
        """Lower the target by one if it is time to."""
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
