"""The asyncio shell around the core: it passes inputs to the core, and executes the core's actions.

Every input goes to the core with the time. The shell polls the core once per turn of the event loop, so that
all requests that were read in one turn can share a batch.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Generic, TypeVar, assert_never

from mypy_extensions import mypyc_attr

from uncork_dispatcher.actions import (
    SHORTEST_RETRY_S,
    Abandon,
    Action,
    Expired,
    GoalOutOfReach,
    Lost,
    Shed,
    WorkerWanted,
)
from uncork_dispatcher.alarm import Timer
from uncork_dispatcher.callers import FutureWaiter, Observers, fail, notify, settle
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.errors import BatchTimedOut, RequestExpired, RequestShed, WorkerLost
from uncork_dispatcher.jobs import BatchResult, Bursts, Observer, RequestResult, Runner, Submission
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiSample, ApiStats, WorkStats

log = logging.getLogger("uncork.dispatcher")

P = TypeVar("P")
R = TypeVar("R")


@mypyc_attr(allow_interpreted_subclasses=True)
class AsyncDispatcher(Generic[P, R]):
    """Merges concurrent requests into batches that ``runner`` executes. Belongs to one event loop.

    Methods without a description call the method of :class:`Dispatcher` with the time of the clock.

    ``observers`` are notified of events. ``bursts`` submits requests and takes results several at a time;
    without it, callers do so one by one.
    ``clock`` returns monotonic seconds; by default not the loop's clock, because uvloop's has a resolution of
    1 ms, the time of a batch of a fast model.
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
        self._bursts = bursts
        self._timer = Timer(self._changed, clock=clock)
        self._now = self._timer.now
        self._loop = asyncio.get_running_loop()
        self._turn_due = False
        self._departed: dict[Batch[Any], list[Any]] = {}
        """By batch, the running requests that have left in this turn."""
        self._is_sending = False
        """True while the runner gets the batches of a poll."""
        self._start_worker: Callable[[], object] = lambda: None
        self._turned: asyncio.Event | None = None
        """Set when the core has changed; None while no coroutine waits for it."""

    def set_api(self, rules: ApiRules) -> None:
        self._core.set_api(rules)
        self._changed()

    def remove_api(self, name: str) -> bool:
        """Remove an API and its estimates; return False, and do nothing, while it has requests."""
        return self._core.remove_api(name)

    async def queue_empty(self, apis: Collection[str]) -> None:
        """Wait until no request to these APIs is queued, and no parts follow; requests may still run."""
        while any(map(self._core.has_waiting, apis)):
            await self._change()

    def worker_expected(self, place: Hashable, *, delay_s: float = 0.0, failures: int | None = None) -> None:
        self._core.worker_expected(place, now=self._now(), delay_s=delay_s, failures=failures)
        self._changed()

    def worker_not_expected(self, place: Hashable) -> None:
        self._core.worker_not_expected(place, now=self._now())
        self._changed()

    def workers_on_demand(self, start: Callable[[], object]) -> None:
        """Call ``start`` when requests arrive or wait while there are no workers; it must start one soon.

        See :meth:`Dispatcher.workers_on_demand`.
        """
        self._start_worker = start
        self._core.workers_on_demand(now=self._now())
        self._changed()

    @property
    def is_empty(self) -> bool:
        return self._core.is_empty

    @property
    def startup_s(self) -> float | None:
        return self._core.startup_s

    def worker_ready(
        self, worker: int, *, place: Hashable = None, host: Hashable = None, takes_ahead: bool = False
    ) -> None:
        self._core.worker_ready(worker, now=self._now(), place=place, host=host, takes_ahead=takes_ahead)
        self._changed()

    def worker_retired(self, worker: int) -> None:
        self._core.worker_retired(worker, now=self._now())
        self._changed()

    def profile(self, api: str, worker: int, chunks: Sequence[tuple[float, float]]) -> None:
        self._core.profile(api, worker, chunks, now=self._now())
        self._changed()

    def limit_batches(self, worker: int, api: str, fits: float) -> None:
        self._core.limit_batches(worker, api, fits, now=self._now())
        self._changed()

    def learned(self, api: str) -> list[tuple[float, float]]:
        return self._core.learned(api)

    def recall(self, api: str, learned: Sequence[tuple[float, float]]) -> None:
        self._core.recall(api, learned)

    def worker_lost(self, worker: int) -> None:
        """Remove a worker. Its batches run again, or their requests fail; see :meth:`Dispatcher.worker_lost`.

        The runner must not end the worker's batches, and is not notified of the loss.
        """
        if self._is_sending:
            # In the next turn: the other batches of this poll must be sent first.
            self._loop.call_soon(self.worker_lost, worker)
            return
        now = self._now()
        for batch in self._core.worker_lost(worker, now=now):
            self._lost(batch, now)
        self._changed()

    def submit(self, request: Submission[P, R]) -> None:
        """Queue a request; its waiter gets the result.

        Raises:
            RequestShed: if the request was shed at once; the waiter is not notified.
        """
        now = request.arrival = self._now()
        rows, cost = request.rows, request.cost
        shed = self._core.submit(
            request,
            api=request.api,
            now=now,
            key=request.key,
            group=request.group,
            rows=rows if cost is None else cost,
            count=None if cost is None else rows,
            longest=request.longest,
            size_bytes=request.size_bytes,
            expires_at=now + request.client_timeout_s,
            source=request.source,
            flow=request.flow,
            bulk=request.bulk,
            follows=request.follows,
        )
        if shed is not None:
            if shed.reason == "no_worker":
                self._changed()  # one may be wanted
            raise self._observers.shed(shed)
        if not self._turn_due:  # else the core is polled soon anyway
            self._poll_when_due(now)

    def bulk_parts(
        self, api: str, *, rows: float, size_bytes: int, client_timeout_s: float = math.inf
    ) -> int:
        now = self._now()
        return self._core.bulk_parts(
            api, rows=rows, size_bytes=size_bytes, now=now, expires_at=now + client_timeout_s
        )

    def parts_in_turn(self, api: str, *, rows: float) -> tuple[int, int]:
        return self._core.parts_in_turn(api, rows=rows, now=self._now())

    def reserve(self, api: str, *, rows: float, size_bytes: int, bulk: bool = False) -> None:
        self._core.reserve(api, rows=rows, size_bytes=size_bytes, bulk=bulk)

    def cancel(self, request: Submission[P, R]) -> int | None:
        """Remove a request whose waiter has left; ignore a request whose waiter was notified.

        Return the number of the batch that runs with it; None if there is none.
        """
        if request.leave() is None:
            return None
        number = self._withdraw(request)
        self._changed()
        return number

    def _withdraw(self, request: Submission[P, R]) -> int | None:
        """Remove a request from the core; if it runs, notify the runner in the next turn."""
        batch = self._core.cancel(request, now=self._now())
        if batch is None:
            return None
        self._departed.setdefault(batch, []).append(request)
        return batch.number

    async def call(self, api: str, payload: P, **options: Any) -> RequestResult[R]:
        """Execute ``payload`` in a batch and return its result; ``options`` as for :class:`Submission`.

        Raises:
            RequestShed: if the request was shed, at once or after it was queued.
            RequestExpired: if ``client_timeout_s`` passed while it ran.
            BatchTimedOut, WorkerLost: if its batch did not complete.
            Exception: if the runner ended the whole batch with that exception.
        """
        future: asyncio.Future[RequestResult[R]] = self._loop.create_future()
        request: Submission[P, R] = Submission(FutureWaiter(future), api, payload, **options)
        self.submit(request)
        try:
            return await future
        finally:
            self.cancel(request)  # does something only if the caller was cancelled
            # Else the traceback of its exception refers to it. Old versions of mypyc reject del here.
            future = None  # type: ignore[assignment]

    async def drain(self) -> None:
        """Shed new requests, release queued requests, and wait until all have been answered."""
        self._core.drain(now=self._now())
        self._changed()
        while not self._core.is_empty:
            await self._change()

    @property
    def unanswered(self) -> int:
        """The number of requests that are queued or running."""
        return len(self._core.unanswered)

    def give_up(self) -> None:
        """Shed every unanswered request, at the end of a drain.

        Queued requests never start. Batches that run are cancelled, and keep their workers until they end.
        """
        for request in list(self._core.unanswered):
            self._withdraw(request)
            fail([request], RequestShed("draining"))
        self._changed()

    def close(self) -> None:
        """Stop the timer: queued requests are not released any more."""
        self._timer.close()

    def stats(self) -> list[ApiStats]:
        return self._core.stats(now=self._now())

    def sample(self, api: str) -> ApiSample:
        return self._core.sample(api)

    def work(self) -> WorkStats:
        return self._core.work(now=self._now())

    # Driving the core

    def _changed(self) -> None:
        """Poll the core in the next turn of the loop, after all other inputs of this turn."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _poll_when_due(self, now: float) -> None:
        if (wakeup := self._core.next_wakeup()) > now:
            self._timer.set(wakeup, now)
        else:
            self._changed()

    def _turn(self) -> None:
        if self._bursts is not None:
            self._bursts.submit_waiting()
        self._turn_due = False
        if self._departed:
            self._cancel_running()
        while actions := self._core.poll(now := self._now()):
            self._send(actions)
            self._report(actions, now)
        self._timer.set(self._core.next_wakeup(), now)
        self._conclude()

    def _cancel_running(self) -> None:
        """Notify the runner of the running requests that have left since the last turn."""
        departed, self._departed = self._departed, {}
        for batch, requests in departed.items():
            if self._core.runs(batch.number):
                notify("the runner", self._runner.cancel, batch, requests)

    def _conclude(self) -> None:
        """Notify the observers of started batches, and wake the coroutines that wait for a change."""
        if self._observers.started:
            self._observers.notify_started()
        if self._turned is not None:
            self._turned.set()
            self._turned = None

    async def _change(self) -> None:
        """Wait until the core has changed."""
        if self._turned is None:
            self._turned = asyncio.Event()
        await self._turned.wait()

    def _send(self, actions: Sequence[Action]) -> None:
        """Give the runner all batches of a poll.

        Call this before notifications: a waiter or an observer may cancel a request of one of the batches.
        """
        self._is_sending = True
        try:
            for batch in actions:
                if not isinstance(batch, Batch):
                    continue
                self._observers.started.append(batch)
                ended = partial(self._on_end, batch)
                try:
                    self._runner.start(batch, ended)
                except Exception as error:
                    ended(error)
        finally:
            self._is_sending = False

    def _report(self, actions: Sequence[Action], now: float) -> None:
        """Notify runner, observers and waiters of the actions of a poll, after its batches were sent."""
        for action in actions:
            match action:
                case Batch():
                    pass
                case Shed(request):
                    # A caller that left when another of its requests was shed got one refusal.
                    if request.waiter is not None:
                        fail([request], self._observers.shed(action))
                case Abandon(batch, behind):
                    self._abandon(batch, behind, now)
                case Lost(request):
                    fail([request], WorkerLost("the worker died while running the batch"))
                case Expired(request):
                    self._expire(request, now)
                case WorkerWanted():
                    notify("the start of a worker", self._start_worker)
                case GoalOutOfReach(api, goal_s, needed_s):
                    log.warning(
                        "%s: even the smallest request takes %.1f ms, longer than the goal (%g ms), so every "
                        "response is late. Raise the goal or make the model faster",
                        *(api, needed_s * 1000, goal_s * 1000),
                    )
                case _:
                    assert_never(action)

    def _expire(self, request: Submission[P, R], now: float) -> None:
        """Fail a running request whose client's time has passed, unless it runs for other clients too."""
        if request.waiter is None:
            return  # A callback has cancelled it since the poll.
        if request.on_expiry is None:
            number = self._withdraw(request)
            self._observers.shed(Shed(request, request.api, "client_deadline", SHORTEST_RETRY_S))
            fail([request], RequestExpired("the client's time passed while the request ran", batch=number))
        else:
            expires_at = math.inf
            try:
                expires_at = request.on_expiry(now)
            except Exception:
                log.exception("a waiter raised")
            self._core.extend(request, expires_at=expires_at, now=self._now())
        self._changed()

    # Batches

    def _abandon(self, batch: Batch[Any], behind: Sequence[Batch[Any]], now: float) -> None:
        """End a batch that ran past its timeout, and the batches behind it."""
        notify("the runner", self._runner.abandon, batch.number, batch.worker)
        batch.ended(now)
        self._observers.batch_ended(batch, "timed_out")
        for lost in behind:
            self._lost(lost, now)
        fail(batch.requests, BatchTimedOut("the batch exceeded its timeout", batch=batch.number))

    def _lost(self, batch: Batch[Any], now: float) -> None:
        batch.ended(now)
        self._observers.batch_ended(batch, "lost")

    def _on_end(self, batch: Batch[Submission[P, R]], outcome: BatchResult[R] | Exception) -> None:
        if self._is_sending:
            # In the next turn: the other batches of this poll must be sent first.
            self._loop.call_soon(self._on_end, batch, outcome)
            return
        ended_at = self._now()
        if self._bursts is not None:
            self._bursts.submit_waiting()
        settled = BatchResult.checked(outcome, batch)
        ran = BatchResult[R]((), "failed") if isinstance(settled, Exception) else settled
        # The slot returns first, whatever the waiters do. Queued requests wait for it: the worker gets its
        # next batch before the callers get their results. Observers come last: no caller waits for them.
        now, seconds = self._now(), max(0.0, ended_at - batch.started)
        number, status, chunks = batch.number, ran.status, ran.chunks
        try:
            if not self._core.batch_done(
                number, status=status, seconds=seconds, chunks=chunks, prepare_s=ran.prepare_s, now=now
            ):
                return  # abandoned, or lost with its worker
            batch.ended(ended_at)
            actions = self._core.poll(now) if self._core.has_queued else []
            if actions:
                self._send(actions)
        except Exception:
            # A fault of the core must not cost the callers their results: the batch may be gone from it.
            settle(batch, settled)
            raise
        with self._bursts or nullcontext():
            settle(batch, settled)
        if status == "worked":
            now = self._now()
            self._core.responses_written(batch.api, now - ended_at, now=now)
        if actions:
            self._report(actions, now)
        self._observers.batch_ended(batch, status)
        self._poll_when_due(self._now())
        self._conclude()
