"""The asyncio shell around the core: futures, one timer, the outbound calls.

It decides nothing. Every input goes to the core with the time. The shell polls the core once per turn of the
event loop, so that all requests that were read in one turn can share a batch, and executes the actions.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Generic, TypeVar, Unpack, assert_never

from mypy_extensions import mypyc_attr

from uncork_dispatcher.actions import Abandon, Action, GoalOutOfReach, Lost, Shed, Start
from uncork_dispatcher.alarm import Timer
from uncork_dispatcher.callers import Call, CallOptions, Calls, FutureWaiter, NoBursts, Observers, notify
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.errors import BatchTimedOut, RequestShed, WorkerLost
from uncork_dispatcher.jobs import BatchFacts, BatchResult, Bursts, Observer, RequestResult, Runner, Waiter
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiSample, ApiStats, WorkStats

log = logging.getLogger("uncork.dispatcher")

P = TypeVar("P")
R = TypeVar("R")

# Retry-After while draining: the successor's start time is unknown.
_RETRY_S = 1.0


@mypyc_attr(allow_interpreted_subclasses=True)
class AsyncDispatcher(Generic[P, R]):
    """Merges concurrent requests into batches that ``runner`` executes. Belongs to one event loop.

    ``observers`` are notified of events. ``bursts`` submits requests and takes answers several at a time.
    ``clock`` gives monotonic seconds. It is not the loop's own clock, because uvloop's has a resolution of a
    millisecond, which is a whole batch of a fast model.
    """

    def __init__(
        self,
        runner: Runner[P, R],
        *,
        observers: Sequence[Observer] = (),
        bursts: Bursts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = Dispatcher()
        self._runner = runner
        self._observers = Observers(observers)
        self._bursts = bursts or NoBursts()
        self._timer = Timer(self._changed, clock=clock)
        self._now = self._timer.now
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._calls: Calls[P, R] = Calls()
        self._running: dict[int, BatchFacts] = {}
        """Batches that have not ended; their duration is not known yet."""
        self._turn_due = False
        self._is_sending = False
        """Whether the runner is given the batches of a poll."""
        self._turned = asyncio.Event()
        """Set for a moment whenever the core has changed."""

    def set_api(self, rules: ApiRules) -> None:
        """Add an API or change its rules."""
        self._core.set_api(rules)
        self._changed()

    def remove_api(self, name: str) -> bool:
        """Forget an API and what was learned; return False, and do nothing, while it has requests."""
        return self._core.remove_api(name)

    async def queue_empty(self, apis: Collection[str]) -> None:
        """Return when no request to these APIs is queued; some may run."""
        while any(self._core.sample(api).queued_rows for api in apis):
            await self._turned.wait()

    def worker_expected(self, place: Hashable, *, delay_s: float = 0.0, failures: int = 0) -> None:
        """Note that a worker process is being launched; see :meth:`Dispatcher.worker_expected`."""
        self._core.worker_expected(place, now=self._now(), delay_s=delay_s, failures=failures)
        self._changed()

    def worker_not_expected(self, place: Hashable) -> None:
        """Note that no process is launched any more; see :meth:`Dispatcher.worker_not_expected`."""
        self._core.worker_not_expected(place, now=self._now())
        self._changed()

    @property
    def startup_s(self) -> float | None:
        """How long an expected worker usually takes to be ready; see :attr:`Dispatcher.startup_s`."""
        return self._core.startup_s

    def worker_ready(
        self, worker: int, *, place: Hashable = None, host: Hashable = None, takes_ahead: bool = False
    ) -> None:
        """Add a worker; see :meth:`Dispatcher.worker_ready`."""
        self._core.worker_ready(worker, now=self._now(), place=place, host=host, takes_ahead=takes_ahead)
        self._changed()

    def worker_retired(self, worker: int) -> None:
        """Give a worker no more batches; see :meth:`Dispatcher.worker_retired`."""
        self._core.worker_retired(worker, now=self._now())
        self._changed()

    def profile(self, api: str, worker: int, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (rows, seconds) of batches that a worker ran to warm up."""
        self._core.profile(api, worker, chunks, now=self._now())
        self._changed()

    def worker_lost(self, worker: int) -> None:
        """Remove a worker. Its batches run again, or their requests fail; see :meth:`Dispatcher.worker_lost`.

        Only this reports a loss: the runner does not end the batches of the worker, and is not notified.
        """
        if self._is_sending:
            # In the next turn: the other batches of this poll must be sent first.
            self._loop.call_soon(self.worker_lost, worker)
            return
        now = self._now()
        self._core.worker_lost(worker, now=now)
        for batch in [batch for batch in self._running.values() if batch.start.worker == worker]:
            del self._running[batch.start.batch]
            self._observers.batch_ended(batch.ended_at(now), "lost")
        self._changed()

    def submit(
        self,
        waiter: Waiter[R],
        api: str,
        payload: P,
        *,
        rows: int = 1,
        cost: float | None = None,
        longest: float | None = None,
        size_bytes: int = 0,
        key: Hashable = None,
        client_timeout_s: float = math.inf,
        source: Hashable = None,
        flow: Hashable = None,
    ) -> int:
        """Queue ``payload`` for some batch and return the number of the request; ``waiter`` gets the result.

        Limits, estimate and policy count ``cost``, a positive number in any unit, instead of ``rows`` where
        it is given; all requests of an API should give it or none. ``longest`` is the largest cost
        of a row, by default the average: if the model pads batches to their longest row, requests of similar
        length share a batch. ``source`` is the client, for example its connection, by which the dispatcher
        recognises returning clients; None if unknown. Each ``flow`` gets an equal share of the queue, where
        the rules are ``fair``.

        Raises:
            RequestShed: it was shed at once; the waiter is not notified.
        """
        now = self._now()
        number = next(self._numbers)
        weight = rows if cost is None else cost
        shed = self._core.submit(
            number,
            api=api,
            now=now,
            key=key,
            rows=weight,
            count=None if cost is None else rows,
            longest=longest,
            size_bytes=size_bytes,
            expires_at=now + client_timeout_s,
            source=source,
            flow=flow,
        )
        if shed is not None:
            raise self._observers.shed(shed)
        self._calls[number] = Call(payload, rows, weight, now, waiter)
        self._poll_when_due(now)
        return number

    def cancel(self, request: int) -> None:
        """Forget a request whose waiter has left; ignore one whose waiter was notified."""
        if self._calls.pop(request, None) is not None:
            self._core.cancel(request, now=self._now())
            self._changed()

    async def call(self, api: str, payload: P, **options: Unpack[CallOptions]) -> RequestResult[R]:
        """Execute ``payload`` in some batch and return its result. Options as for :meth:`submit`.

        Raises:
            RequestShed: it was shed, at once or after it was queued.
            BatchTimedOut, WorkerLost: its batch got no answer.
            Exception: the exception of the runner for the whole batch.
        """
        future: asyncio.Future[RequestResult[R]] = self._loop.create_future()
        number = self.submit(FutureWaiter(future), api, payload, **options)
        try:
            return await future
        finally:
            self.cancel(number)  # does something only if the caller was cancelled
            del future  # else the traceback of its exception refers to it

    async def drain(self) -> None:
        """Shed new requests, release the queued ones, and return when all have been answered."""
        self._core.drain(now=self._now())
        self._changed()
        while not self._core.is_empty:
            await self._turned.wait()

    @property
    def unanswered(self) -> int:
        """How many requests are queued or running."""
        return len(self._calls)

    def give_up(self) -> None:
        """Shed every unanswered request, at the end of a drain.

        Queued requests never start. Batches that run keep their workers until they end.
        """
        for request in list(self._calls):
            self._core.cancel(request, now=self._now())
            self._calls.fail([request], RequestShed("draining", _RETRY_S))
        self._changed()

    def close(self) -> None:
        """Close the timer. Queued requests are not released any more."""
        self._timer.close()

    def stats(self) -> list[ApiStats]:
        """Return what each API has queued and what was learned about it."""
        return self._core.stats(now=self._now())

    def sample(self, api: str) -> ApiSample:
        """Return totals and estimates of one API; :class:`KeyError` if there is no such API."""
        return self._core.sample(api)

    def work(self) -> WorkStats:
        """Return how many workers there are, and what they run."""
        return self._core.work(now=self._now())

    # Driving the core

    def _changed(self) -> None:
        """Poll the core in the next turn of the loop, after all other inputs of this turn."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _poll_when_due(self, now: float) -> None:
        """Poll the core when it has something to do, after an input at ``now``."""
        if (wakeup := self._core.next_wakeup()) > now:
            self._timer.set(wakeup, now)
        else:
            self._changed()

    def _turn(self) -> None:
        self._bursts.submit_waiting()
        self._turn_due = False
        while actions := self._core.poll(now := self._now()):
            self._send(actions, now)
            self._report(actions, now)
        self._timer.set(self._core.next_wakeup(), now)
        self._conclude()

    def _conclude(self) -> None:
        """Notify the observers of batches that have started, and wake the coroutines that wait."""
        self._observers.notify_started()
        self._turned.set()
        self._turned.clear()

    def _send(self, actions: Sequence[Action], now: float) -> None:
        """Give the runner all batches of a poll.

        Before anyone is notified: a waiter or an observer may cancel a request of one of these batches.
        """
        jobs = []
        for start in actions:
            if isinstance(start, Start):
                job, queued_s = self._calls.job(start, now)
                batch = self._running[start.batch] = BatchFacts(start, sum(job.rows), now, 0.0, max(queued_s))
                self._observers.batch_starts(batch, queued_s)
                jobs.append(job)
        self._is_sending = True
        try:
            for job in jobs:
                ended = partial(self._on_end, job.start)
                try:
                    self._runner.start(job, ended)
                except Exception as error:
                    ended(error)
        finally:
            self._is_sending = False

    def _report(self, actions: Sequence[Action], now: float) -> None:
        """Notify runner, observers and waiters of the actions of a poll whose batches have been sent."""
        for action in actions:
            match action:
                case Start():
                    pass
                case Shed(request):
                    self._calls.fail([request], self._observers.shed(action))
                case Abandon(number, worker, requests):
                    self._abandon(number, worker, requests, now)
                case Lost(request):
                    self._calls.fail([request], WorkerLost("the worker died while running the batch"))
                case GoalOutOfReach(api, goal_s, needed_s):
                    log.warning(
                        "%s: even the smallest request takes %.1f ms, longer than the goal (%g ms), so every "
                        "response is late. Raise the goal or make the model faster",
                        *(api, needed_s * 1000, goal_s * 1000),
                    )
                case _:
                    assert_never(action)

    # Batches

    def _abandon(self, number: int, worker: int, requests: Sequence[int], now: float) -> None:
        """End a batch that ran past its timeout; it may have ended since the core gave it up."""
        running = self._running.pop(number, None)
        if running is not None:
            notify("the runner", self._runner.abandon, number, worker)
            self._observers.batch_ended(running.ended_at(now), "timed_out")
        self._calls.fail(requests, BatchTimedOut("the batch exceeded its timeout"))

    def _on_end(self, start: Start, outcome: BatchResult[R] | Exception) -> None:
        if self._is_sending:
            # In the next turn: the other batches of this poll must be sent first.
            self._loop.call_soon(self._on_end, start, outcome)
            return
        started = self._core.running_since(start.batch)
        if started is None:
            return  # abandoned, or lost with its worker
        batch = self._running.pop(start.batch).ended_at(self._now(), started)
        self._bursts.submit_waiting()
        settled = BatchResult.checked(outcome, start)
        ran = BatchResult[R]((), "failed") if isinstance(settled, Exception) else settled
        # The slot returns first, whatever the waiters do. Queued requests wait for it: the worker gets its
        # next batch before the callers get their results. Observers come last: no caller waits for them.
        now, seconds = self._now(), batch.seconds
        self._core.batch_done(start.batch, status=ran.status, seconds=seconds, chunks=ran.chunks, now=now)
        actions = self._core.poll(now) if self._core.has_queued else []
        if actions:
            self._send(actions, now)
        with self._bursts:
            self._calls.settle(batch, settled)
        self._report(actions, now)
        self._observers.batch_ended(batch, ran.status)
        self._poll_when_due(self._now())
        self._conclude()
