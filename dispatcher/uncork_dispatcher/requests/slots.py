"""The outbound semaphore: one slot per healthy worker, and the batches that occupy them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from uncork_dispatcher.actions import Start
from uncork_dispatcher.policies.base import Numbers
from uncork_dispatcher.requests.launches import Launches
from uncork_dispatcher.requests.lazy_heap import LazyHeap
from uncork_dispatcher.requests.outlook import Outlook
from uncork_dispatcher.requests.queue import Entry
from uncork_dispatcher.stats import RunningBatch, WorkStats

# Seconds that a host is avoided after it lost a worker. If the host itself has died, its other workers are
# lost within this time: their connections break, or the TCP keepalive of a first one has just failed. It is
# short because most workers that are lost died alone, and their hosts are needed.
_AVOIDED_S = 2.0
# The next worker is the fastest of this many idle ones. If there are more, one of these is very likely about
# as fast as the fastest of all.
_COMPARED = 16


@dataclass(slots=True)
class Running:
    """A batch that a worker executes; it is abandoned at ``gives_up_at``. Times are on the core's clock."""

    start: Start
    entries: list[Entry]
    started: float
    gives_up_at: float


class Slots:
    """Which workers there are, which are idle (the one idle longest first), and what the rest run."""

    def __init__(self) -> None:
        self._workers: dict[int, Hashable] = {}
        """The host of each healthy worker."""
        self._idle: dict[int, None] = {}
        self._running: dict[int, Running] = {}
        """By batch."""
        self._batches: dict[int, int] = {}
        """The batch of each worker that runs one."""
        self._retried: set[int] = set()
        """Batches that run a quarantined request."""
        self._timeouts = LazyHeap(self._running)
        self._outlook = Outlook()
        """Without the batches of retired workers: no other batch can start when they end."""
        self._retired: set[int] = set()
        """Workers that get no more batches but still run one."""
        self._avoided: dict[Hashable, float] = {}
        """Until when hosts are avoided; some of these times may have passed."""
        self.launches = Launches()
        self.next_timeout = math.inf
        """When the first running batch times out; infinity if nothing runs."""
        self.changes = 0
        """Counts the changes: a result computed from the slots is valid while this stays the same."""

    def __iter__(self) -> Iterator[Running]:
        return iter(self._running.values())

    @property
    def workers(self) -> int:
        """How many healthy workers there are."""
        return len(self._workers)

    @property
    def idle(self) -> int:
        """How many batches could start now."""
        return len(self._idle)

    @property
    def running(self) -> int:
        """How many batches run."""
        return len(self._running)

    def add(self, worker: int, host: Hashable = None) -> None:
        """Add a worker; of one that is known, only the host changes."""
        if worker not in self._workers:
            self.changes += 1
            if worker in self._retired:
                self._retired.discard(worker)
                running = self._running[self._batches[worker]]
                self._outlook.add(running.start, running.started)
            else:
                self._idle[worker] = None
        self._workers[worker] = host

    def lose(self, worker: int, *, now: float) -> Running | None:
        """Remove a worker; return the batch that it was running.

        Its host is avoided for a while, unless the worker was retired or given up before.
        """
        self.changes += 1
        if worker in self._workers:
            self._avoided[self._workers.pop(worker)] = now + _AVOIDED_S
        self._idle.pop(worker, None)
        number = self._batches.get(worker)
        return None if number is None else self._remove(number)

    def retire(self, worker: int) -> None:
        """Give a worker no more batches; it finishes its last. Ignore a worker that is unknown."""
        if worker in self._workers:
            self.changes += 1
            del self._workers[worker]
            self._idle.pop(worker, None)
            if worker in self._batches:
                self._retired.add(worker)
                running = self._running[self._batches[worker]]
                self._outlook.remove(running.start, running.started)

    def next_idle(self, slowdown: Callable[[int], float] | None, now: float) -> int:
        """Return the fastest of the first idle workers, of equally fast ones the one idle longest.

        ``slowdown`` gives the factor on the time of each; None: all are equal. There must be an idle worker.
        While hosts are avoided, workers of other hosts go first. If there are none idle, those of the host
        that will be avoided for the shortest time go first.
        """
        if self._avoided:
            self._end_avoidance(now)
            first = self._least_avoided()
            return first[0] if slowdown is None else min(first, key=slowdown)
        if slowdown is not None and len(self._idle) > 1:
            return min(islice(self._idle, _COMPARED), key=slowdown)
        return next(iter(self._idle))

    def avoids_idle_until(self, now: float) -> float:
        """Return until when a lost batch should wait for a worker of another host; ``now`` if it should not.

        It waits while all idle workers are on avoided hosts, and a busy one on a host that is not avoided, or
        for a shorter time. A worker must be idle.
        """
        if not self._avoided:
            return now
        self._end_avoidance(now)
        until = min(map(self._avoided_until, self._idle))
        return until if any(self._avoided_until(worker) < until for worker in self._workers) else now

    def occupy(self, running: Running) -> None:
        """Take the slot of the worker that the batch starts on."""
        self.changes += 1
        del self._idle[running.start.worker]
        start = running.start
        self._running[start.batch] = running
        self._batches[start.worker] = start.batch
        if running.entries[0].queue.retry == "alone":
            self._retried.add(start.batch)
        self._outlook.add(start, running.started)
        self._timeouts.push(running.gives_up_at, start.batch)
        if running.gives_up_at < self.next_timeout:
            self.next_timeout = running.gives_up_at

    def runs(self, batch: int) -> bool:
        """Whether a batch runs."""
        return batch in self._running

    def retries(self, api: str) -> bool:
        """Whether a quarantined request of an API is being retried."""
        return any(self._running[batch].start.api == api for batch in self._retried)

    def finish(self, batch: int) -> Running | None:
        """Free the slot of a batch that has ended; return None if the batch is not known any more."""
        self.changes += 1
        running = self._remove(batch)
        if running is not None and running.start.worker in self._workers:
            self._idle[running.start.worker] = None
        return running

    def give_up_overdue(self, now: float) -> list[Running]:
        """Remove the batches that ran past their timeout, and their workers."""
        if now < self.next_timeout:
            return []
        overdue = []
        while (first := self._timeouts.top()) is not None and first.gives_up_at <= now:
            overdue.append(first)
            self._remove(first.start.batch)
            self._workers.pop(first.start.worker, None)
        self.changes += len(overdue)
        return overdue

    @property
    def busy_until(self) -> Sequence[float]:
        """The predicted finish of each running batch, soonest first; of late ones it is in the past.

        Without the batches of retired workers: no other batch can start when they end.
        """
        return self._outlook.finishes

    def running_rows(self, api: str) -> Numbers:
        """Return the rows of an API in each of these batches; 0 in another API's."""
        return self._outlook.rows(api)

    def free_at(self, now: float) -> Numbers:
        """Return when each worker is free, soonest first; without workers, when each that starts is due."""
        return self._outlook.free_at(now, len(self._idle)) if self._workers else self.launches.due(now)

    def stats(self, now: float) -> WorkStats:
        """Return how many workers there are, and what they run."""
        running = [
            RunningBatch(
                batch.start.worker,
                batch.start.api,
                batch.start.rows,
                len(batch.entries),
                now - batch.started,
                batch.started + batch.start.predicted_s - now,
            )
            for batch in self
        ]
        return WorkStats(self.workers, self.idle, running)

    def _remove(self, batch: int) -> Running | None:
        running = self._running.pop(batch, None)
        if running is None:
            return None
        start = running.start
        del self._batches[start.worker]
        self._retried.discard(batch)
        if start.worker in self._retired:
            self._retired.discard(start.worker)
        else:
            self._outlook.remove(start, running.started)
        if running.gives_up_at <= self.next_timeout:
            first = self._timeouts.top()
            self.next_timeout = math.inf if first is None else first.gives_up_at
        return running

    def _least_avoided(self) -> list[int]:
        """Return the first idle workers of hosts that are not avoided, or else of the one to be used next."""
        # Not a generator expression: mypyc would go through all workers.
        preferred = filter(lambda worker: self._avoided_until(worker) == -math.inf, self._idle)
        workers = list(islice(preferred, _COMPARED))
        if not workers:
            soonest = min(map(self._avoided_until, self._idle))
            workers = [worker for worker in self._idle if self._avoided_until(worker) == soonest]
        return workers

    def _avoided_until(self, worker: int) -> float:
        """Return until when the host of a worker is avoided; minus infinity if it is not."""
        return self._avoided.get(self._workers[worker], -math.inf)

    def _end_avoidance(self, now: float) -> None:
        """Forget the hosts that are not avoided any more."""
        self._avoided = {host: until for host, until in self._avoided.items() if until > now}
