"""A model of the core: a second, naive set of books that it must agree with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from uncork_dispatcher.actions import Abandon, Action, BatchStatus, Expired, Lost, Shed
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.states import RequestState
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiStats

S = RequestState
TRANSITIONS = {
    S.QUEUED: {S.RUNNING, S.SHED, S.CANCELLED},
    S.RUNNING: {S.ANSWERED, S.TIMED_OUT, S.REQUEUED, S.LOST, S.CANCELLED},
    S.REQUEUED: {S.REPEATING, S.SHED, S.CANCELLED},
    S.REPEATING: {S.ANSWERED, S.TIMED_OUT, S.REQUEUED, S.QUARANTINED, S.LOST, S.CANCELLED},
    S.QUARANTINED: {S.RETRYING, S.SHED, S.CANCELLED},
    S.RETRYING: {S.ANSWERED, S.TIMED_OUT, S.QUARANTINED, S.LOST, S.CANCELLED},
}
"""The states that may follow each state; the others are final."""
RUNS = [S.RUNNING, S.REPEATING, S.RETRYING]
"""The state of a request in each of its runs."""
AVOIDED_S = 2.0
"""How long a host is avoided that lost a worker."""


def shared(one: Request | Batch[int]) -> tuple[Hashable, ...]:
    """What the requests of a batch have in common."""
    return one.api, one.key, one.group


@dataclass
class Request:
    """A request that was taken in."""

    number: int
    api: str
    key: Hashable
    count: int
    length: int
    size_bytes: int
    deadline: float
    expires_at: float
    flow: Hashable = None
    group: Hashable = None
    state: RequestState = RequestState.QUEUED
    runs: int = 0
    since: float = 0.0
    """When it arrived, or was quarantined."""

    @property
    def rows(self) -> int:
        return self.count * self.length

    def move(self, state: RequestState) -> None:
        assert state in TRANSITIONS[self.state]
        self.state = state

    @property
    def is_queued(self) -> bool:
        return self.state in (S.QUEUED, S.REQUEUED, S.QUARANTINED)


@dataclass
class Running:
    """A batch at a worker, as it was started; one that is ahead does not run yet."""

    start: Batch[Any]
    gives_up_at: float


class Model:
    """The books. Every action of the core is checked against them, then entered."""

    def __init__(self) -> None:
        self.rules: dict[str, ApiRules] = {}
        self.requests: dict[int, Request] = {}
        self.queues: dict[tuple[Hashable, ...], list[Request]] = {}
        self.repeats: list[list[Request]] = []
        """The requests of each batch that was lost once and is queued again."""
        self.quarantine: list[Request] = []
        self.losing: set[int] = set()
        """Requests that are lost, which the next poll will say."""
        self.expired: set[int] = set()
        """Running requests whose time has passed, as a poll has said."""
        self.workers: dict[int, str] = {}
        """The host of each."""
        self.take_ahead: set[int] = set()
        """Workers that may get a batch while they run one."""
        self.avoided: dict[str, float] = {}
        """Until when each host is avoided that lost a worker."""
        self.host_died_until = 0.0
        """Until when retries spare no worker, because a whole host was lost."""
        self.deserted = math.inf
        """Since when the core has seen no workers."""
        self.launches: dict[int, tuple[float, int]] = {}
        """When each worker that is not ready starts, and how often it has failed."""
        self.since: dict[int, float] = {}
        """Since when each of them has not been ready."""
        self.startups_s: list[float] = []
        self.running: dict[int, Running] = {}
        self.in_the_way: list[Request] = []
        self.just_shed: list[Request] = []
        """Requests that the same poll has shed for their deadline."""
        self.transport_s = 0.0
        """The most that the core has expected of transport, which shortens deadlines."""
        self.draining = False
        self.displacing = False
        """Whether requests that were queued until the last submit may be shed for it."""
        self.estimates: dict[str, Estimate] = {}
        """Of each API, after the last actions; the core may learn from a batch after it has shed requests."""

    def queued(self, api: str | None = None) -> list[Request]:
        queues = (*self.queues.values(), *self.repeats, self.quarantine)
        return [one for queue in queues for one in queue if api in (None, one.api)]

    def idle(self, api: str = "") -> dict[int, int]:
        """How many batches of an API each worker could start, if any; by default of one without slots."""
        most = self._concurrency(api)
        free = dict.fromkeys(self.workers, most)
        for batch in self.running.values():
            at = batch.start.worker
            if at in free and (
                batch.start.api == api if most > 1 else self._concurrency(batch.start.api) == 1
            ):
                retried = max(one.runs for one in self._of(batch.start)) > 1
                free[at] = 0 if most == 1 or retried else free[at] - 1
        return {worker: count for worker, count in free.items() if count > 0}

    def _concurrency(self, api: str) -> int:
        return self.rules[api].concurrency if api in self.rules else 1

    def avoided_until(self, worker: int, now: float) -> float:
        """Until when the host of a worker is avoided; 0 if it is not."""
        until = self.avoided.get(self.workers[worker], 0.0)
        return until if until > now else 0.0

    # Inputs

    def submitted(self, request: Request, refused: Shed | None, *, now: float, stats: ApiStats) -> None:
        """Check the answer at the door, and enter the request if it was taken in."""
        queued, rules = self.queued(request.api), self.rules[request.api]
        rows = request.rows + sum(one.rows for one in queued)
        size_bytes = request.size_bytes + sum(one.size_bytes for one in queued)
        expected = None
        if self.draining:
            expected = "draining"
        elif not (self.workers or self.due(now)):
            expected = "no_worker"
        elif request.expires_at <= now:
            expected = "client_deadline"
        elif queued and (rows > rules.max_queue_rows or size_bytes > rules.max_queue_bytes):
            expected = self._full(request, refused)
        elif not self.workers:
            expected = self._without_workers(request, refused, now, stats)
        elif refused is not None:
            expected = "deadline"
            assert queued or not self.idle(request.api), "a lone request was refused though a worker is idle"
            assert stats.estimate.earned_rows > 0
        assert (refused and refused.reason) == expected
        if refused is None:
            request.since = now
            self.requests[request.number] = request
            self.queues.setdefault(shared(request), []).append(request)
        else:
            assert (refused.request, refused.api) == (request.number, request.api)
            assert refused.retry_after_s >= 1.0

    def _without_workers(
        self, request: Request, refused: Shed | None, now: float, stats: ApiStats
    ) -> str | None:
        """A worker is due: the request is queued if it can be answered in time, else refused."""
        done = self.due(now)[0] + stats.estimate.seconds(request.rows)
        if not self.queued(request.api) and done < request.deadline - self.transport_s - 1e-9:
            return None
        return "no_worker" if done > request.deadline else refused and refused.reason

    def due(self, now: float) -> list[float]:
        """When the workers that can be counted on should be ready."""
        return sorted([max(now, at + startup_s) for at, startup_s in self._counted(now)])

    def _counted(self, now: float) -> list[tuple[float, float]]:
        """When these workers start, and how long a start takes."""
        if not self.startups_s:
            return []
        startup_s = statistics.median(self.startups_s[-5:])
        return [
            (at, startup_s)
            for at, failures in self.launches.values()
            if failures < 2 and now <= at + 2 * startup_s
        ]

    def _full(self, request: Request, refused: Shed | None) -> str | None:
        """A fair queue may refuse others instead, which the next poll says."""
        if not self.rules[request.api].fair:
            return "queue_full"
        if refused is None:
            self.displacing = True
        return refused and refused.reason

    def cancelled(self, number: int) -> None:
        """A caller left; one whose request has ended has left already."""
        request = self.requests.get(number)
        if request is None or request.state not in TRANSITIONS:
            return
        if request.is_queued:
            self._unqueue(request)
        request.move(S.CANCELLED)

    def extended(self, number: int, expires_at: float) -> None:
        """A running request whose time has passed got a new time."""
        self.expired.remove(number)
        self.requests[number].expires_at = expires_at

    def expected(self, worker: int, *, at: float, failures: int) -> None:
        """A worker is being launched, or will be."""
        self.launches[worker] = (at, failures)
        self.since.setdefault(worker, at)

    def spares_one_until(self, now: float, request: Request) -> float:
        """Until when a request that runs again must wait, so that a worker is left for others."""
        if now < self.host_died_until:
            return now
        risky = {
            batch.start.worker
            for batch in self.running.values()
            if max(one.runs for one in self._of(batch.start)) > 1
        }
        if len(self.workers.keys() - risky) > 1:
            return now
        if self.workers.keys() & risky:
            return math.inf
        if not self.startups_s:
            return now
        patience_s = 4 * statistics.median(self.startups_s[-5:])
        queue = next(queue for queue in (*self.repeats, self.quarantine) if request in queue)
        oldest = min(one.since for one in queue if shared(one) == shared(request))
        newest = max((since + patience_s for since in self.since.values()), default=now)
        return max(now, min(newest, oldest + self.rules[request.api].timeout_s))

    def at(self, worker: int) -> list[Running]:
        """The batches of a worker: the one that runs and the one ahead."""
        return [batch for batch in self.running.values() if batch.start.worker == worker]

    def ready(self, worker: int, *, now: float, host: str, takes_ahead: bool) -> None:
        self.workers[worker] = host
        self.take_ahead.discard(worker)
        if takes_ahead:
            self.take_ahead.add(worker)
        if worker in self.launches:
            self.startups_s.append(max(0.0, now - self.launches.pop(worker)[0]))
            del self.since[worker]

    def retired(self, worker: int) -> None:
        """A worker takes no more batches; it finishes its last."""
        self.workers.pop(worker, None)

    def lost_worker(self, worker: int, *, now: float) -> None:
        """Its requests are to run again, except those that may not or were cancelled."""
        if worker in self.workers:
            host = self.workers.pop(worker)
            if self.avoided.get(host, 0.0) > now and self.workers and host not in self.workers.values():
                self.host_died_until = now + AVOIDED_S
            self.avoided[host] = now + AVOIDED_S
        for batch in self.at(worker):
            self._lose(batch, now)

    def _lose(self, batch: Running, now: float, *, is_suspect: bool = True) -> None:
        """Its requests are to run again; the loss counts only if they may be the reason for it."""
        del self.running[batch.start.number]
        repeated: list[Request] = []
        for request in self._of(batch.start):
            if request.state is S.CANCELLED:
                continue
            if not is_suspect and request.runs > 1:
                request.runs -= 1
            if request.runs == 3 or not self.rules[request.api].idempotent:
                request.move(S.LOST)
                self.losing.add(request.number)
            else:
                request.move([S.REQUEUED, S.QUARANTINED][request.runs - 1])
                [repeated, self.quarantine][request.runs - 1].append(request)
                request.since = now if request.runs > 1 else request.since
        if repeated:
            self.repeats.append(repeated)

    def done(self, number: int, status: BatchStatus, *, now: float) -> None:
        """A batch has come back; the one behind it runs now."""
        assert status in ("worked", "failed")
        start = self.running.pop(number).start
        self._end(start, S.ANSWERED)
        for ahead in self.at(start.worker):
            if ahead.gives_up_at == math.inf and self._concurrency(start.api) == 1:
                ahead.gives_up_at = now + self.rules[ahead.start.api].gives_up_after_s

    # Outputs

    def entered(self, actions: list[Action], *, now: float, stats: list[ApiStats]) -> None:
        # A request alone has no padding.
        estimates = {
            each.name: each.estimate.in_units_of(1 - (each.padding.share if each.padding else 0))
            for each in stats
        }
        self.just_shed.clear()
        for action in actions:
            match action:
                case Lost(number):
                    self.losing.remove(number)
                case Expired(number):
                    assert self.requests[number].state in RUNS
                    assert self.requests[number].expires_at <= now
                    assert number not in self.expired
                    self.expired.add(number)
                case Abandon(batch, behind):
                    overdue = self.running.pop(batch.number)
                    assert overdue.gives_up_at <= now
                    assert overdue.start is batch
                    self.retired(batch.worker)
                    self._end(batch, S.TIMED_OUT)
                    # One that is as late is given up for itself; the others are lost with the first.
                    others = [other for other in self.at(batch.worker) if other.gives_up_at > now]
                    numbers = [other.start.number for other in others]
                    assert sorted(numbers) == sorted(other.number for other in behind)
                    for lost in behind:
                        self._lose(self.running[lost.number], now, is_suspect=False)
                case Shed():
                    request = self.requests[action.request]
                    known = [estimates[request.api], self.estimates.get(request.api)]
                    self._shed(request, action, now, [each for each in known if each is not None])
                case Batch():
                    self._start(action, now)
        self.estimates = estimates

    def agrees(self, stats: list[ApiStats]) -> None:
        """The totals of every api are those of the requests queued."""
        for each in stats:
            queued = self.queued(each.name)
            assert each.queued_requests == len(queued)
            assert each.queued_rows == sum(one.rows for one in queued)
            assert each.queued_bytes == sum(one.size_bytes for one in queued)

    def _start(self, start: Batch[Any], now: float) -> None:
        assert all(shared(one) == shared(start) for one in self.in_the_way)
        self.in_the_way.clear()
        taken = self._of(start)
        assert taken
        assert start.number not in self.running
        assert start.worker in self.workers, "none on a lost or retired one"
        idle = self.idle(start.api)
        if ahead := start.worker not in idle:
            self._check_ahead(start, taken)
        untils = {worker: self.avoided_until(worker, now) for worker in self.workers}
        assert ahead or untils[start.worker] == min(untils[worker] for worker in idle), (
            "another host has one idle"
        )
        assert len({one.state for one in taken}) == 1, "those that run again are not mixed with others"
        if taken[0].state is not S.QUEUED:
            assert self.draining or self.spares_one_until(now, taken[0]) <= now, (
                "it should leave a worker for others"
            )
        if taken[0].state is S.REQUEUED:
            assert untils[start.worker] == min(untils.values()), "it should wait for a worker of another host"
            assert sorted(one.number for one in taken) in [
                sorted(one.number for one in lost) for lost in self.repeats
            ], "a lost batch runs again as it was"
        elif taken[0].state is S.QUARANTINED:
            assert len(taken) == 1, "quarantined requests go alone"
            assert not self._retries(start.api), "one quarantined request of an api at a time"
        else:
            self._start_batch(taken, start)
        assert {shared(one) for one in taken} == {shared(start)}
        assert all(one.expires_at > now for one in taken), "its client has given up"
        assert start.rows == sum(one.rows for one in taken)
        assert start.padded == sum(one.count for one in taken) * max(one.length for one in taken)
        assert 0 <= start.predicted_s < math.inf
        # What transport takes is left off.
        assert all(at <= one.deadline for at, one in zip(start.deadlines, taken, strict=True))
        assert (start.reason == "drain") == self.draining
        for request in taken:
            self._unqueue(request)
            request.move(RUNS[request.runs])
            request.runs += 1
            assert request.runs == 1 or self.rules[request.api].idempotent, "it must not run twice"
        gives_up_at = math.inf if ahead else now + self.rules[start.api].gives_up_after_s
        self.running[start.number] = Running(start, gives_up_at)

    def _check_ahead(self, start: Batch[Any], taken: list[Request]) -> None:
        """Check that a batch may be sent to a worker that runs another."""
        assert not self.idle(start.api), "another worker could run it now"
        assert self._concurrency(start.api) == 1
        assert start.worker in self.take_ahead
        [running] = [one for one in self.at(start.worker) if self._concurrency(one.start.api) == 1]
        assert max(one.runs for one in self._of(running.start)) == 1, (
            "the first may kill its worker once more"
        )
        assert taken[0].state is S.QUEUED
        rules, queue = self.rules[start.api], self.queues[shared(start)] + self.just_shed
        assert rules.idempotent
        if start.reason == "not_worth_waiting":
            assert rules.policy == "cork", "no other policy lets clients take turns"
            return
        assert start.reason == "full"
        assert (
            sum(one.rows for one in queue) >= rules.max_batch_rows
            or sum(one.size_bytes for one in queue) >= rules.max_batch_bytes
            or any(one.length > 1 for one in self.requests.values())  # then padding is part of the limit
        ), "more might have come"

    def _start_batch(self, taken: list[Request], start: Batch[Any]) -> None:
        rules, queue = self.rules[start.api], self.queues[shared(start)]
        lengths = [one.length for one in taken]
        for flow in {one.flow for one in taken} if rules.fair else [None]:
            due = [
                (deadline, one.number)
                for deadline, one in zip(start.deadlines, taken, strict=True)
                if flow in (None, one.flow)
            ]
            assert due == sorted(due), "earliest deadline first"
            for other in queue:
                # For the core it is due earlier than here, by the transport.
                if other in taken or flow not in (None, other.flow):
                    continue
                assert rules.fair or (other.deadline, other.number) > due[0], (
                    "the most urgent is in every batch"
                )
                if (other.deadline, other.number) < due[-1]:
                    assert not min(lengths) <= other.length <= max(lengths), "passed over"
        if len(taken) > 1:
            assert start.rows <= rules.max_batch_rows
            assert sum(one.size_bytes for one in taken) <= rules.max_batch_bytes
            assert rules.policy != "none"

    def _shed(self, request: Request, shed: Shed, now: float, estimates: list[Estimate]) -> None:
        assert shed.api == request.api
        assert shed.retry_after_s >= 1.0
        self._unqueue(request)
        request.move(S.SHED)
        if shed.reason == "queue_full":
            assert self.displacing, "only for one that was taken in instead"
        elif request.expires_at <= now:
            assert shed.reason == "client_deadline"
        elif not self.workers:
            assert shed.reason == "no_worker"
            earlier = replace(request, deadline=request.deadline - self.transport_s)
            assert min(self._leaves_at(earlier, now, each) for each in estimates) <= now + 1e-9
        else:
            assert shed.reason == "deadline"
            self.just_shed.append(request)
            assert not request.runs, "no prediction sheds a request that has run"
            assert not self.draining
            longest_s = max(self._least_s(request, each) for each in estimates)
            if self.idle(request.api) or not request.deadline - longest_s <= now + self.transport_s + 1e-9:
                # Refused for the sake of a larger batch, which takes the last idle worker or is sent ahead.
                assert sum(self.idle(request.api).values()) <= 1
                self.in_the_way.append(request)
                return
            assert any(each.earned_rows > 0 for each in estimates)

    def _least_s(self, request: Request, estimate: Estimate) -> float:
        """The least time that it takes alone, as far as that is known."""
        trusted = min(request.rows, self.rules[request.api].max_batch_rows) <= estimate.earned_rows
        return estimate.seconds(request.rows if trusted else estimate.earned_rows)

    def _leaves_at(self, request: Request, now: float, estimate: Estimate | None = None) -> float:
        """When a request is refused if there is no worker until then.

        After the timeout at the latest, or when no worker can be counted on any more. By the ``estimate``, if
        one is given: a worker that is due may be too late for it.
        """
        latest = self.deserted + self.rules[request.api].timeout_s
        latest = max([latest, *(at + 2 * startup_s for at, startup_s in self._counted(now))])
        return latest if request.runs else min(latest, self._hopeless_at(request, now, estimate))

    def _hopeless_at(self, request: Request, now: float, estimate: Estimate | None) -> float:
        due = self.due(now)
        if due and estimate is not None and estimate.earned_rows:
            last_start = request.deadline - estimate.seconds(min(request.rows, estimate.earned_rows))
            return last_start if due[0] <= last_start else now
        return now if due and estimate is not None and due[0] > request.deadline else request.deadline

    def at_rest(self, now: float, wakeup: float) -> None:
        """Check that polls have left nothing to do."""
        self.displacing = False
        assert not self.in_the_way, "refused for a batch that never came"
        assert wakeup > now, "the driver would spin"
        self.deserted = math.inf if self.workers else min(self.deserted, now)
        assert not self.losing
        for batch in self.running.values():
            assert wakeup <= batch.gives_up_at, "a batch would run past its timeout"
            for one in self._of(batch.start):
                if one.state in RUNS and one.number not in self.expired:
                    assert wakeup <= one.expires_at, "a client would give up unseen"
        for request in self.queued():
            assert wakeup <= request.expires_at, "a client would give up unseen"
            if not self.workers:
                assert wakeup <= self._leaves_at(request, now)
            if idle := self.idle(request.api):
                assert wakeup < math.inf, "held for ever"
                until = self.spares_one_until(now, request) if request.runs else now
                if until > now and not self.draining:
                    assert wakeup <= until, "it would wait too long"
                    continue
                if request.state is S.REQUEUED:
                    untils = {worker: self.avoided_until(worker, now) for worker in self.workers}
                    until = min(untils[worker] for worker in idle)
                    assert min(untils.values()) < until, "it should run on one of the idle workers"
                    assert wakeup <= until, "it would wait too long"
                    continue
                if request.state is S.QUARANTINED:
                    assert self._retries(request.api), "only another quarantined request may be in its way"
                    continue
                assert not self.draining
                assert self.rules[request.api].policy != "none"

    def _of(self, start: Batch[Any]) -> list[Request]:
        return [self.requests[number] for number in start.requests]

    def _end(self, start: Batch[Any], state: RequestState) -> None:
        for request in self._of(start):
            if request.state is not S.CANCELLED:
                request.move(state)

    def _unqueue(self, request: Request) -> None:
        assert request.is_queued
        if request.state is S.QUEUED:
            self.queues[shared(request)].remove(request)
        elif request.state is S.QUARANTINED:
            self.quarantine.remove(request)
        else:
            for lost in self.repeats:
                if request in lost:
                    lost.remove(request)

    def _retries(self, api: str) -> bool:
        starts = [batch.start for batch in self.running.values() if batch.start.api == api]
        return any(one.runs == 3 for start in starts for one in self._of(start))
