"""The asyncio shell around the core: futures, one timer, the outbound calls.

It chooses nothing. Every input goes to the core with the time; the core is polled once per turn of the
event loop, so that all requests that were read in one turn can share a batch; what it answers is carried out.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypedDict, TypeVar, TypeVarTuple, Unpack

from uncork_dispatcher.actions import Abandon, Action, Ending, GoalOutOfReach, Lost, Shed, ShedReason, Start
from uncork_dispatcher.alarm import make_alarm
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.errors import BatchTimedOut, RequestShed, WorkerLost
from uncork_dispatcher.jobs import Answer, BatchFacts, Job, Observer, Ran, Runner, Waiter
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiSample, ApiStats, WorkStats

log = logging.getLogger("uncork.dispatcher")

P = TypeVar("P")
R = TypeVar("R")
Args = TypeVarTuple("Args")


_FAR_S = 0.1
# Nobody knows when whoever comes after a server that stopped is there.
_RETRY_S = 1.0


@dataclass(slots=True, eq=False)
class _Waiting(Generic[P, R]):
    """A request, from submit until its waiter has been told."""

    payload: P
    rows: int
    cost: float
    arrival: float
    waiter: Waiter[R]


class CallOptions(TypedDict, total=False):
    """What :meth:`AsyncDispatcher.submit` takes beside api and payload."""

    rows: int
    cost: float | None
    size_bytes: int
    key: Hashable
    client_timeout_s: float
    source: Hashable
    flow: Hashable


class _Caller(Generic[R]):
    """A waiter that is a coroutine."""

    def __init__(self, future: asyncio.Future[Answer[R]]) -> None:
        self._future = future

    def answered(self, answer: Answer[R]) -> None:
        if not self._future.done():
            self._future.set_result(answer)

    def failed(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class AsyncDispatcher(Generic[P, R]):
    """Merges concurrent requests into batches that ``runner`` executes. Belongs to one event loop.

    ``observers`` are told what happens.
    ``clock`` gives monotonic seconds. It is not the loop's own clock, because uvloop's has a resolution
    of a millisecond, which is a whole batch of a fast model.
    """

    def __init__(
        self,
        runner: Runner[P, R],
        *,
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = Dispatcher()
        self._runner = runner
        self._observers = observers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._latest = -math.inf
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting[P, R]] = {}
        self._running: dict[int, BatchFacts] = {}
        """Batches that have not ended; how long they take is not known yet."""
        self._turn_due = False
        self._alarm = make_alarm(self._rang, clock=clock)
        self._alarm_at = math.inf
        self._idle = asyncio.Event()

    def set_api(self, rules: ApiRules) -> None:
        """Add an api or change its rules."""
        self._core.set_api(rules)
        self._changed()

    def remove_api(self, name: str) -> bool:
        """Forget an API and what is known of it; returns False, and does nothing, while it has requests."""
        return self._core.remove_api(name)

    def worker_expected(self, launch: Hashable, *, delay_s: float = 0.0, failures: int = 0) -> None:
        """A worker process is being launched; see :meth:`Dispatcher.worker_expected`."""
        self._core.worker_expected(launch, now=self._now(), delay_s=delay_s, failures=failures)
        self._changed()

    def worker_ready(self, worker: int, *, launch: Hashable = None) -> None:
        """A worker may be given batches; ``launch`` as for :meth:`worker_expected`."""
        self._core.worker_ready(worker, now=self._now(), launch=launch)
        self._changed()

    def profile(self, api: str, worker: int, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (rows, seconds) of batches that a worker has run to warm up."""
        self._core.profile(api, worker, chunks, now=self._now())
        self._changed()

    def worker_lost(self, worker: int) -> None:
        """A worker is gone. What it was running is run once more, one request at a time, or fails."""
        self._core.worker_lost(worker, now=self._now())
        self._changed()

    def submit(
        self,
        waiter: Waiter[R],
        api: str,
        payload: P,
        *,
        rows: int = 1,
        cost: float | None = None,
        size_bytes: int = 0,
        key: Hashable = None,
        client_timeout_s: float = math.inf,
        source: Hashable = None,
        flow: Hashable = None,
    ) -> int:
        """Have ``payload`` executed in some batch and tell ``waiter``; returns the number of the request.

        Limits, estimate and policy count ``cost``, a positive number in any unit, instead of ``rows`` where
        it is given; all requests of an api should give it or none. ``source`` is who asks, for example a
        client's connection, so that it is known who has come back; None if unknown. ``flow`` is who shares
        the queue equally with others, where the rules are ``fair``.

        Raises:
            RequestShed: it was refused at once; the waiter is not told.
        """
        now = self._now()
        number = next(self._numbers)
        weight = rows if cost is None else cost
        refused = self._core.submit(
            number,
            api=api,
            now=now,
            key=key,
            rows=weight,
            size_bytes=size_bytes,
            expires_at=now + client_timeout_s,
            source=source,
            flow=flow,
        )
        if refused is not None:
            self._tell_shed(api, refused.reason)
            raise RequestShed(refused.reason, refused.retry_after_s)
        self._waiting[number] = _Waiting(payload, rows, weight, now, waiter)
        self._changed()
        return number

    def cancel(self, request: int) -> None:
        """Forget a request: its waiter has left. One whose waiter has been told is passed over.

        It is taken out of the queue, and out of nobody else's way.
        """
        if self._waiting.pop(request, None) is not None:
            self._core.cancel(request, now=self._now())
            self._changed()

    async def call(self, api: str, payload: P, **options: Unpack[CallOptions]) -> Answer[R]:
        """Have ``payload`` executed in some batch, and return its result. Options as for :meth:`submit`.

        Raises:
            RequestShed: it was refused, at once or after it was held.
            BatchTimedOut, WorkerLost: its batch got no answer.
            Exception: whatever the runner raised for the whole batch.
        """
        future: asyncio.Future[Answer[R]] = self._loop.create_future()
        number = self.submit(_Caller(future), api, payload, **options)
        try:
            return await future
        finally:
            self.cancel(number)  # does something only if the caller was cancelled

    async def drain(self) -> None:
        """Refuse new requests, release what is held, and return when everything has been answered."""
        self._core.drain(now=self._now())
        self._changed()
        while not self._core.is_empty:
            self._idle.clear()
            await self._idle.wait()

    @property
    def unanswered(self) -> int:
        """How many requests are held or run."""
        return len(self._waiting)

    def give_up(self) -> None:
        """Refuse every request that has no answer yet. To be called at the end of a drain.

        Queued requests are never started. Batches that run keep their workers until they end.
        """
        for request in list(self._waiting):
            self._core.cancel(request, now=self._now())
            self._fail(request, RequestShed("draining", _RETRY_S))
        self._changed()

    def close(self) -> None:
        """Give the timer back. Nothing that is held is released any more."""
        self._alarm.close()

    def stats(self) -> list[ApiStats]:
        """What each api holds and what is known about it."""
        return self._core.stats(now=self._now())

    def sample(self, api: str) -> ApiSample:
        """Totals and beliefs of one api; :class:`KeyError` if there is no such api."""
        return self._core.sample(api)

    def work(self) -> WorkStats:
        """Which workers there are, and what they run."""
        return self._core.work(now=self._now())

    # Driving the core

    def _now(self) -> float:
        # A timer that fires early moves the core ahead of the clock for an instant; time must not go back.
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _changed(self) -> None:
        """Poll the core in the next turn of the loop, after everything else that this turn brings."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _rang(self) -> None:
        self._latest = max(self._latest, self._alarm_at)
        self._alarm_at = math.inf
        self._changed()

    def _turn(self) -> None:
        self._turn_due = False
        while actions := self._core.poll(now := self._now()):
            for action in actions:
                self._carry_out(action, now)
        self._arm(self._core.next_wakeup(), now)
        if self._core.is_empty:
            self._idle.set()

    def _arm(self, wakeup: float, now: float) -> None:
        if wakeup == self._alarm_at:
            return
        # Timeouts of batches are far away and seldom come: to ring once for nothing costs less than to set
        # the alarm for each of them.
        if wakeup > self._alarm_at > now + _FAR_S:
            return
        self._alarm_at = wakeup
        self._alarm.set(wakeup, now)

    def _carry_out(self, action: Action, now: float) -> None:
        match action:
            case Start():
                self._start(action, now)
            case Shed(request, api, reason, retry_after_s):
                self._tell_shed(api, reason)
                self._fail(request, RequestShed(reason, retry_after_s))
            case Abandon(batch, worker, requests):
                _notify("the runner", self._runner.abandon, batch, worker)
                self._tell_ended(_ended_at(self._running.pop(batch), now), "timed_out")
                for request in requests:
                    self._fail(request, BatchTimedOut("the batch ran past its timeout"))
            case Lost(request):
                self._fail(request, WorkerLost("the worker died while it ran the batch"))
            case GoalOutOfReach(api, goal_s, needed_s):
                log.warning(
                    "%s: even the smallest request takes %.3g ms, longer than mb_max_latency (%.3g ms): all "
                    "answers are late. Raise the goal or make the model faster",
                    *(api, needed_s * 1000, goal_s * 1000),
                )

    # Batches

    def _start(self, start: Start, now: float) -> None:
        waiting = [self._waiting[request] for request in start.requests]
        job = Job(
            start,
            payloads=[one.payload for one in waiting],
            rows=[one.rows for one in waiting],
            costs=[one.cost for one in waiting],
            left_s=[deadline - now for deadline in start.deadlines],
        )
        held_s = [now - one.arrival for one in waiting]
        rows = sum(job.rows)
        self._running[start.batch] = BatchFacts(start, rows, now, 0.0, max(held_s))
        try:
            self._runner.start(job, lambda outcome: self._ended(start, outcome))
        except Exception as error:
            # In the next turn: the actions after this one are still to be carried out.
            self._loop.call_soon(self._ended, start, error)
        for observer in self._observers:
            _notify("an observer", observer.batch_started, start, rows, held_s)

    def _ended(self, start: Start, outcome: Ran[R] | Exception) -> None:
        running = self._running.pop(start.batch, None)
        is_lost = isinstance(outcome, WorkerLost)
        if running is None or is_lost or not self._core.runs(start.batch):
            # The core may have given the batch up, or its worker, and have its requests run elsewhere.
            if running is not None:
                self._tell_ended(_ended_at(running, self._now()), "lost")
            if is_lost:
                self.worker_lost(start.worker)
            return
        batch = _ended_at(running, self._now())
        failure = outcome if isinstance(outcome, Exception) else outcome.fault(start)
        ran = Ran[R]((), "failed") if failure is not None or isinstance(outcome, Exception) else outcome
        # First what somebody waits for: the worker, if requests are held, otherwise the callers.
        if self._core.has_queued:
            self._done(batch, ran)
            self._turn()
            self._tell(batch, failure or ran)
        else:
            self._tell(batch, failure or ran)
            self._done(batch, ran)
            self._changed()

    def _done(self, batch: BatchFacts, ran: Ran[R]) -> None:
        self._core.batch_done(
            batch.start.batch,
            outcome=ran.outcome,
            seconds=batch.seconds,
            chunks=ran.chunks,
            now=self._now(),
        )
        self._tell_ended(batch, ran.outcome)

    def _tell_ended(self, batch: BatchFacts, ending: Ending) -> None:
        for observer in self._observers:
            _notify("an observer", observer.batch_ended, batch, ending)

    def _tell_shed(self, api: str, reason: ShedReason) -> None:
        for observer in self._observers:
            _notify("an observer", observer.request_shed, api, reason)

    def _tell(self, batch: BatchFacts, outcome: Ran[R] | Exception) -> None:
        if isinstance(outcome, Exception):
            for request in batch.start.requests:
                self._fail(request, outcome)
            return
        for request, result in zip(batch.start.requests, outcome.results, strict=True):
            waiting = self._waiting.pop(request, None)
            if waiting is not None:
                answer = Answer(result, batch, batch.started - waiting.arrival)
                _notify("a waiter", waiting.waiter.answered, answer)

    def _fail(self, request: int, error: Exception) -> None:
        """Tell a waiter of an error; one that has left or was told already is passed over."""
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            _notify("a waiter", waiting.waiter.failed, error)


def _notify(who: str, callback: Callable[[*Args], object], *args: *Args) -> None:
    """Call ``callback``. If it raises, log that: other requests, batches and slots depend on what follows."""
    try:
        callback(*args)
    except Exception:
        log.exception("%s raised", who)


def _ended_at(running: BatchFacts, now: float) -> BatchFacts:
    start, rows, started, _, waited_s = running
    return BatchFacts(start, rows, started, now - started, waited_s)
