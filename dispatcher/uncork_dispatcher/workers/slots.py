"""The outbound semaphore: one slot per healthy worker, and the batches that occupy them.

An API with ``concurrency`` has slots of its own at each worker, beside the one that the other APIs share.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

from uncork_dispatcher.loop_plan import MOST_SPREAD
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.lazy_heap import LazyHeap
from uncork_dispatcher.stats import RunningBatch, WorkStats
from uncork_dispatcher.workers.hosts import Hosts
from uncork_dispatcher.workers.launches import Launches
from uncork_dispatcher.workers.memory_fits import MemoryFits
from uncork_dispatcher.workers.share import ConcurrentShare, Share
from uncork_dispatcher.workers.shares import Shares

# If more batches than this are late, the predicted ends of others are worth little.
_MOST_LATE = 15


class Slots:
    """The healthy workers, which of them are idle (the longest idle first), and the batches that run."""

    def __init__(self) -> None:
        self._hosts = Hosts()
        self._workers = self._hosts.of
        """The host of each healthy worker."""
        self._idle: dict[int, None] = {}
        self._running: dict[int, Batch[Any]] = {}
        """By number of the batch."""
        self._batches: dict[int, list[Batch[Any]]] = {}
        """For each busy worker, the batch that it runs, then the batch ahead if there is one.

        A worker that is busy but not healthy is *retired*: it gets no more batches.
        """
        self._beside: dict[int, list[Batch[Any]]] = {}
        """The batches that each worker runs in the slots of APIs with ``concurrency``."""
        self._takes_ahead: set[int] = set()
        """Workers to which a batch may be sent while they run another."""
        self._retried: set[int] = set()
        """Batches that were lost and run again."""
        self._timeouts = LazyHeap(self._running)
        self.shares = Shares(self._hosts, self._idle)
        self.workers = 0
        """The number of healthy workers."""
        self.memory = MemoryFits()
        """The sizes of batches that fit into the memory of the workers."""
        self.launches = Launches()
        self.next_timeout = math.inf
        """When the first running batch times out; infinity if nothing runs."""
        self.changes = 0
        """The number of changes: a result computed from the slots is valid while this stays the same."""

    def __iter__(self) -> Iterator[Batch[Any]]:
        return iter(self._running.values())

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def takes_ahead(self) -> bool:
        """True if any worker may get a batch while it runs another."""
        return bool(self._takes_ahead)

    def reserve(self, api: str, workers: int, concurrency: int = 1) -> None:
        """Reserve this number of workers for an API; with 0, let it share the unreserved ones.

        With a ``concurrency`` over 1, it has so many slots of its own at each worker instead.
        """
        self.shares.reserve(api, workers, concurrency)
        self._deal()

    def forget(self, api: str) -> None:
        """Remove an API, which must not have batches."""
        self.shares.forget(api)
        self._deal()

    def add(self, worker: int, host: Hashable = None, *, takes_ahead: bool = False) -> None:
        """Add an idle worker; ignore a known one, even if it is retired and still runs a batch."""
        if not self.is_gone(worker):
            return
        self.changes += 1
        self._workers[worker] = host
        self._idle[worker] = None
        for share in self.shares.concurrent():
            share.join(worker)
        if takes_ahead:
            self._takes_ahead.add(worker)
        self._count()

    def lose(self, worker: int, *, now: float) -> list[Batch[Any]]:
        """Remove a worker; return its batches, in their order.

        Its host is avoided for 2 s, unless the worker was retired or given up before.
        """
        self.changes += 1
        is_healthy, host = worker in self._workers, self._workers.get(worker)
        batches = self._remove(worker)
        if is_healthy:
            self._hosts.lost(host, now=now)
        return batches

    def retire(self, worker: int) -> None:
        """Give a worker no more batches; it finishes its own. Ignore an unknown worker."""
        if worker in self._workers:
            self.changes += 1
            self._leave(worker)

    def limit_batches(self, worker: int, api: str, fits: float) -> None:
        """Limit the size of an API's batches on a worker, unless the worker gets none any more."""
        if worker in self._workers:
            self.changes += 1
            self.memory.limit(worker, api, fits)

    def is_gone(self, worker: int) -> bool:
        """Return True if a worker gets no more batches and has none."""
        busy = worker in self._batches or worker in self._beside
        return worker not in self._workers and not busy

    def spares_one_until(self, now: float, at_most: float) -> float:
        """Return until when a batch that runs again should wait for another worker.

        That is ``now`` or earlier if it should not wait. Its next worker may die too, so it should leave a
        healthy worker for other requests. It waits while every other worker runs such a batch, and until
        ``at_most`` for one that is about to be ready. It does not wait if a host with several workers has
        just lost all of them: then no request killed them. A worker must be idle.
        """
        if now < self._hosts.died_until:
            return now
        at_risk = len({self._running[batch].worker for batch in self._retried} & self._workers.keys())
        if len(self._workers) > at_risk + 1:
            return now
        return math.inf if at_risk else min(at_most, self.launches.awaited_until(now))

    def occupy(self, running: Batch[Any]) -> None:
        """Start a batch on the idle worker that it names, which takes a slot of the worker."""
        self.changes += 1
        worker, share = running.worker, self.shares.of[running.api]
        self._running[running.number] = running
        is_retried = running.entries[0].queue.retry is not None
        if is_retried:
            self._retried.add(running.number)
        share.add(running)
        if isinstance(share, ConcurrentShare):
            self._beside.setdefault(worker, []).append(running)
            share.began(worker, retried=is_retried)
        else:
            del self._idle[worker]
            self._batches[worker] = [running]
            self.shares.count_idle()
        self._limit_time(running)

    def next_ahead(self, now: float, api: str, prepare_s: float = 0.0) -> Batch[Any] | None:
        """Return the batch that should end next, late batches aside, if one of ``api`` may be sent behind it.

        Nothing is sent behind a batch that runs again, because it may kill this worker too. With several
        workers, nothing is sent behind a batch whose end is uncertain: another worker may be idle first. And
        nothing while another API waits for its reserved worker. If the worker prepares the batch while it
        runs the other, ``prepare_s`` is how long: the end may be uncertain by as much more.
        """
        share = self.shares.of[api]
        if not self._takes_ahead or isinstance(share, ConcurrentShare):
            return None
        if len(self.shares.all) > 1 and any(share.is_short for share in self.shares.all):
            return None
        for running in islice(share.batches, _MOST_LATE + 1):
            if now < running.finish + running.transport_s:
                worker = running.worker
                may_follow = (
                    worker in self._takes_ahead
                    # Not a batch beside, whose API had slots of its own when it began.
                    and self._batches.get(worker) == [running]
                    and running.entries[0].queue.retry is None
                    and (
                        share.workers == 1
                        or running.spread_s <= MOST_SPREAD * running.transport_s + prepare_s
                    )
                )
                return running if may_follow else None
        return None

    def put_ahead(self, ahead: Batch[Any]) -> None:
        """Note that a batch ahead has been sent to its worker."""
        self.changes += 1
        batches, share = self._batches[ahead.worker], self.shares.of[ahead.api]
        self._running[ahead.number] = ahead
        share.remove(batches[0])
        batches.append(ahead)
        share.add(ahead)

    def batch(self, number: int) -> Batch[Any] | None:
        return self._running.get(number)

    def retries(self, api: str) -> bool:
        """Return True if a quarantined request of an API is being retried."""
        retried = [self._running[batch] for batch in self._retried]
        return any(one.api == api and one.entries[0].queue.retry == "alone" for one in retried)

    def finish(self, batch: int, *, now: float) -> Batch[Any] | None:
        """End a batch and return it; return None if it is unknown.

        If its worker has a batch ahead, that batch starts; otherwise the slot is free.
        """
        self.changes += 1
        running = self._running.pop(batch, None)
        if running is None:
            return None
        worker = running.worker
        is_healthy = worker in self._workers
        if worker in self._beside and running in self._beside[worker]:
            self._end_beside(running, is_healthy=is_healthy)
            return running
        self._forget(running)
        batches = self._batches[worker]
        if is_healthy:
            self.shares.of[batches[-1].api].remove(batches[-1])
        has_run = running is batches[0]
        batches.remove(running)
        if batches:
            if has_run:
                batches[0].started = now
                self._limit_time(batches[0])
            if is_healthy:
                self.shares.of[batches[0].api].add(batches[0])
        else:
            del self._batches[worker]
            if is_healthy:
                self._idle[worker] = None
        self.shares.count_idle()
        return running

    def _end_beside(self, ended: Batch[Any], *, is_healthy: bool) -> None:
        """Free the slot of a batch whose API has slots of its own, or had when the batch began."""
        worker, is_retried = ended.worker, ended.number in self._retried
        self._forget(ended)
        self._beside[worker].remove(ended)
        if not self._beside[worker]:
            del self._beside[worker]
        if is_healthy:
            share = self.shares.of[ended.api]
            share.remove(ended)
            if isinstance(share, ConcurrentShare):
                share.ended(worker, retried=is_retried)
        self.shares.count_idle()

    def give_up_overdue(self, now: float) -> list[tuple[list[Batch[Any]], list[Batch[Any]]]]:
        """Remove each worker with a batch that ran past its timeout.

        Return for each of these workers those batches, and its other batches.
        """
        given_up: list[tuple[list[Batch[Any]], list[Batch[Any]]]] = []
        while now >= self.next_timeout:
            first = self._timeouts.top()
            assert first is not None
            self.changes += 1
            ahead = self._batches.get(first.worker, [])[1:]
            overdue: list[Batch[Any]] = []
            others: list[Batch[Any]] = []
            for batch in self._remove(first.worker):
                (overdue if batch.gives_up_at <= now and batch not in ahead else others).append(batch)
            given_up.append((overdue, others))
        return given_up

    def outlook(self, now: float, api: str) -> Share:
        """Return the share of an API, which tells when its workers are free.

        If there are no workers, it has those that are expected.
        """
        share = self.shares.of[api]
        if self._workers and (share.idle or share.batches):
            return share
        outlook = Share()
        if self._workers:
            # The workers of this share were lost: it gets the first that others finish with.
            finishes = [each.finishes[0] for each in self.shares.all if each.finishes]
            outlook.finishes = [min(finishes, default=now)]
        else:
            outlook.finishes = self.launches.due(now)
        return outlook

    def stats(self, now: float) -> WorkStats:
        """Return the number of workers, and the batches that they run."""
        running = [
            RunningBatch(
                *(batch.worker, batch.api, batch.rows, len(batch.entries)),
                *(now - batch.started, batch.started + batch.predicted_s - now),
            )
            for batches in (*[batches[:1] for batches in self._batches.values()], *self._beside.values())
            for batch in batches
        ]
        return WorkStats(self.workers, self.idle, running)

    def _leave(self, worker: int) -> None:
        if worker in self._workers:
            for batch in self._batches.get(worker, [])[-1:] + self._beside.get(worker, []):
                self.shares.of[batch.api].remove(batch)
            for share in self.shares.concurrent():
                share.leave(worker)
        self._workers.pop(worker, None)
        self._idle.pop(worker, None)
        self._takes_ahead.discard(worker)
        self.memory.forget(worker)
        self._count()

    def _limit_time(self, running: Batch[Any]) -> None:
        gives_up_at = running.gives_up_at
        self._timeouts.push(gives_up_at, running.number)
        if gives_up_at < self.next_timeout:
            self.next_timeout = gives_up_at

    def _remove(self, worker: int) -> list[Batch[Any]]:
        self._leave(worker)
        batches = self._batches.pop(worker, []) + self._beside.pop(worker, [])
        for running in batches:
            del self._running[running.number]
            self._forget(running)
        return batches

    def _deal(self) -> None:
        self.changes += 1
        self.shares.clear()
        for concurrent in self.shares.concurrent():
            for worker in self._workers:
                concurrent.join(worker)
        for worker in self._workers:
            for batch in self._batches.get(worker, [])[-1:]:
                self.shares.of[batch.api].add(batch)
            for batch in self._beside.get(worker, []):
                share = self.shares.of[batch.api]
                share.add(batch)
                if isinstance(share, ConcurrentShare):
                    share.began(worker, retried=batch.number in self._retried)
        self._count()

    def _count(self) -> None:
        self.workers = len(self._workers)
        self.shares.count()

    def _forget(self, running: Batch[Any]) -> None:
        """Drop a removed batch from the retried batches and from the timeouts."""
        self._retried.discard(running.number)
        if running.gives_up_at <= self.next_timeout:
            first = self._timeouts.top()
            self.next_timeout = math.inf if first is None else first.gives_up_at
