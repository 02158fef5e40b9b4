"""The asyncio shell when waiters, observers and runners call it back, raise, or end batches at once.

Whatever they do, a poll's batches reach the runner before anyone is notified, every request that is not
cancelled is answered once, and every slot returns.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.shell import shell_of
from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork_dispatcher.actions import BatchStatus, Shed
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import BatchTimedOut, RequestShed, WorkerLost
from uncork_dispatcher.jobs import BatchResult, OnBatchEnd, RequestResult, Submission, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

REACTIONS = ["nothing", "raise", "cancelled", "cancel", "submit", "end", "lose", "ready", "give up"]
STARTS = ["run", "run", "run", "raise", "lost", "cancel", "end"]
RULES = [
    ApiRules(name="a", goal_s=0.2, max_batch_rows=4, timeout_s=0.5, max_queue_rows=12, fair=True),
    ApiRules(name="b", goal_s=0.2, max_batch_rows=4, timeout_s=0.5, policy="fixed:20", idempotent=False),
]
WORKERS = 3


class Intended(Exception):
    """Raised by a callback of these tests."""


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


@dataclass(eq=False)
class Waiter:
    """A waiter that reacts to its answer."""

    world: World
    payload: str
    request: Submission[str, str] | None = None
    ends: list[str] = field(default_factory=list)

    def answered(self, answer: RequestResult[str]) -> None:
        assert answer.result == self.payload.upper()
        self._end("answered")

    def failed(self, error: Exception) -> None:
        self._end(type(error).__name__)

    def _end(self, how: str) -> None:
        self.ends.append(how)
        self.world.react()


class World:
    """A shell; its runner, observers and waiters, which react; and what became of all requests."""

    def __init__(self, reactions: Iterator[str], starts: Iterator[str]) -> None:
        self._reactions, self._starts = reactions, starts
        self._workers = itertools.count()
        self.shell: AsyncDispatcher[str, str] = shell_of(self, observers=[self])
        self.waiters: list[Waiter] = []
        self.running: dict[int, tuple[Batch[Any], OnBatchEnd[str]]] = {}
        self.given: dict[int, Batch[Any]] = {}
        """Every batch that the runner got."""
        self.open: dict[int, int] = {}
        """The workers of those that have not ended."""
        self.ended: list[int] = []
        self._is_starting = False
        for rules in RULES:
            self.shell.set_api(rules)
        self.ready()

    # The runner

    def start(self, batch: Batch[Any], ended: OnBatchEnd[str]) -> None:
        """Run a batch until :meth:`end`, or do something that is not usual."""
        assert batch.number not in self.given
        self.given[batch.number], self.open[batch.number] = batch, batch.worker
        self._is_starting = True
        self.running[batch.number] = batch, ended
        try:
            match next(self._starts, "run"):
                case "raise":
                    del self.running[batch.number]
                    raise Intended
                case "lost":
                    del self.running[batch.number]
                    raise WorkerLost
                case "end":
                    self.end()
                case "cancel":
                    self.cancel_all()
        finally:
            self._is_starting = False

    def abandon(self, batch: int, worker: int) -> None:
        assert self.given[batch].worker == worker
        self.running.pop(batch, None)
        self.react()

    def cancel(self, batch: Batch[Any], requests: Collection[Submission[str, str]]) -> None:
        """Nobody waits for some requests of a batch that runs."""
        assert self.given[batch.number] is batch
        assert batch.number in self.open
        assert not self._is_starting
        assert requests
        assert all(request in batch.requests and request.waiter is None for request in requests)
        self.react()

    # The observer

    def batch_started(self, batch: Batch[Any]) -> None:
        assert self.given[batch.number] is batch
        self.react()

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        self.ended.append(batch.number)
        self.open.pop(batch.number, None)
        self.react()

    def request_shed(self, shed: Shed) -> None:
        self.react()

    # What may happen at any time

    def react(self) -> None:
        """Check that the runner has got every batch, and do the next thing."""
        at = {batch.worker for batch in self.shell.work().running}
        assert at <= set(self.open.values()), "a batch was not sent before somebody was notified"
        match next(self._reactions, "nothing"):
            case "raise":
                raise Intended
            case "cancelled":
                raise asyncio.CancelledError
            case "cancel":
                self.cancel_all()
            case "submit":
                self.submit()
            case "end":
                self.end()
            case "lose":
                self.lose()
            case "ready":
                self.ready()
            case "give up":
                self.shell.give_up()

    def submit(self, api: str = "a", rows: int = 1, patience_s: float = 1e9, flow: str = "x") -> None:
        waiter = Waiter(self, f"p{len(self.waiters)}")
        self.waiters.append(waiter)
        try:
            request: Submission[str, str] = Submission(
                waiter, api, waiter.payload, rows=rows, client_timeout_s=patience_s, flow=flow
            )
            self.shell.submit(request)
            waiter.request = request
        except RequestShed:
            waiter.ends.append("refused")

    def cancel_all(self) -> None:
        """Cancel all requests that are not answered."""
        for waiter in self.waiters:
            if waiter.request is not None and not waiter.ends:
                waiter.ends.append("cancelled")
                self.shell.cancel(waiter.request)

    def end(self, outcome: Callable[[Batch[Any]], Any] | None = None) -> None:
        """End the oldest batch that runs, by default well."""
        if self.running:
            batch = min(self.running)
            job, ended = self.running.pop(batch)
            if not self._is_starting:  # else the shell takes note of the end in the next turn
                self.open.pop(batch, None)
            # Requests of a lost batch that another worker has answered hold no payload.
            shouted = BatchResult([str(payload).upper() for payload in payloads_of(job)])
            ended(shouted if outcome is None else outcome(job))

    def lose(self) -> None:
        """Lose the worker of the oldest batch that runs."""
        if self.running:
            self.shell.worker_lost(self.running[min(self.running)][0].worker)

    def ready(self) -> None:
        """Replace the workers that are gone."""
        for _ in range(WORKERS - self.shell.work().workers):
            self.shell.worker_ready(next(self._workers), takes_ahead=True)

    # The end

    async def finish(self) -> None:
        """Let everything end, and check what became of it."""
        self._reactions = self._starts = iter(())
        for _ in range(100):
            self.ready()
            self.end()
            await asyncio.sleep(0.01)
        fresh = len(self.waiters)
        for _ in range(5):
            self.submit()
            await asyncio.sleep(0.05)
            self.end()
        assert [waiter.ends for waiter in self.waiters[fresh:]] == [["answered"]] * 5
        assert all(len(waiter.ends) == 1 for waiter in self.waiters)
        assert sorted(self.ended) == sorted(self.given)
        assert not self.running
        work = self.shell.work()
        assert (work.workers, work.idle, work.running) == (WORKERS, WORKERS, [])
        assert self.shell.unanswered == 0
        await self.shell.drain()
        self.shell.close()


class Unreadable:
    """A collection that raises when it is counted or read."""

    def __init__(self, counted: int | None) -> None:
        self._counted = counted

    def __len__(self) -> int:
        if self._counted is None:
            raise Intended
        return self._counted

    def __iter__(self) -> Iterator[str]:
        raise Intended

    def __contains__(self, item: object) -> bool:
        return False


OUTCOMES: dict[str, Callable[[Batch[Any]], Any]] = {
    "fails": lambda job: Intended(),
    "timed out": lambda job: BatchTimedOut(),
    "worker dies": lambda job: WorkerLost(),
    "too few": lambda job: BatchResult([]),
    "no result": lambda job: None,
    "cannot be counted": lambda job: BatchResult(Unreadable(None)),  # type: ignore[arg-type]
    "cannot be read": lambda job: BatchResult(Unreadable(len(payloads_of(job)))),  # type: ignore[arg-type]
    "bad chunks": lambda job: BatchResult(payloads_of(job), chunks=[(1,)]),  # type: ignore[list-item]
}
Step = tuple[str, Any]
STEPS = st.lists(
    st.tuples(
        st.just("submit"),
        st.tuples(
            st.sampled_from("aaab"),
            st.integers(1, 5),
            st.sampled_from([1e9, 1e9, 0.03, 0.1]),
            st.sampled_from("xy"),
        ),
    )
    | st.tuples(st.just("end"), st.sampled_from([None, None, None, *OUTCOMES]))
    | st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.001, 0.02, 0.05, 0.6]))
    | st.tuples(st.sampled_from(["lose", "ready", "cancel_all"]), st.none()),
    min_size=5,
    max_size=50,
)


async def happen(steps: Sequence[Step], reactions: Sequence[str], starts: Sequence[str]) -> World:
    """Let it happen, and let everything end."""
    records = Records()
    log = logging.getLogger("uncork.dispatcher")
    log.addHandler(records)
    try:
        world = World(iter(reactions), iter(starts))
        await asyncio.sleep(0)
        for what, arguments in steps:
            match what:
                case "submit":
                    world.submit(*arguments)
                case "end":
                    world.end(OUTCOMES.get(arguments))
                case "sleep":
                    await asyncio.sleep(arguments)
                case _:
                    getattr(world, what)()
        await world.finish()
    finally:
        log.removeHandler(records)
    raised = {record.exc_info[0] for record in records.kept if record.exc_info}
    assert raised <= {Intended, asyncio.CancelledError}
    return world


@given(
    steps=STEPS,
    reactions=st.lists(st.sampled_from(REACTIONS), max_size=60),
    starts=st.lists(st.sampled_from(STARTS), max_size=20),
)
def test_whatever_callbacks_do_every_request_is_answered_and_every_slot_returns(
    steps: list[Step], reactions: list[str], starts: list[str]
) -> None:
    run(happen(steps, reactions, starts), loop_factory=VirtualLoop)


def submitted(rows: int, flow: str = "x", api: str = "a") -> Step:
    """A request of a patient client."""
    return "submit", (api, rows, 1e9, flow)


FULL = [*[submitted(1)] * 12, submitted(1, "y")]
"""Three batches, and one request that is refused for another flow: all in one poll."""


@pytest.mark.parametrize("callback", ["observer", "waiter"])
def test_a_refusal_may_cancel_the_requests_that_start_in_the_same_poll(callback: str) -> None:
    """Their batches are sent; nobody waits for their results."""
    reactions = ["cancel"] if callback == "observer" else ["nothing", "cancel"]
    world = run(happen([*FULL, ("sleep", 0.01)], reactions, []), loop_factory=VirtualLoop)
    ends = [waiter.ends for waiter in world.waiters[:13]]
    assert ends == [["cancelled"]] * 13 if callback == "observer" else ends.count(["RequestShed"]) == 1
    assert [len(start.requests) for start in list(world.given.values())[:3]] == [4, 4, 4]


@pytest.mark.parametrize("reaction", ["raise", "cancelled", "submit", "end", "lose", "ready", "give up"])
def test_a_refused_waiter_may_do_anything(reaction: str) -> None:
    run(happen([*FULL, ("sleep", 0.01)], ["nothing", reaction], []), loop_factory=VirtualLoop)


def test_every_callback_may_raise() -> None:
    run(happen([*FULL, ("sleep", 0.01), ("end", None)], ["raise"] * 60, []), loop_factory=VirtualLoop)


@pytest.mark.parametrize("start", ["raise", "lost", "cancel", "end"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_runner_may_fail_end_or_cancel_batches_while_it_is_given_others(start: str, at: int) -> None:
    starts = [*["run"] * at, start]
    world = run(happen([*FULL, ("sleep", 0.01)], [], starts), loop_factory=VirtualLoop)
    assert {0, 1, 2} == {world.given[batch].worker for batch in (1, 2, 3)}


@pytest.mark.parametrize("reaction", ["raise", "cancel", "submit", "end", "lose", "ready"])
@pytest.mark.parametrize("at", range(8))
def test_batches_that_time_out_together_end_each_by_itself(reaction: str, at: int) -> None:
    """Also if the second ends, or its requests are cancelled, while the first is reported."""
    reactions = [*["nothing"] * (at + 2), reaction]
    steps = [submitted(4), submitted(4), ("sleep", 0.6)]
    world = run(happen(steps, reactions, []), loop_factory=VirtualLoop)
    ends = [waiter.ends for waiter in world.waiters[:2]]
    assert all(end in (["BatchTimedOut"], ["cancelled"]) for end in ends)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("queued", [False, True])
def test_an_outcome_that_makes_no_sense_ends_only_its_batch(outcome: str, queued: bool) -> None:
    behind = [submitted(4)] * 3 if queued else []
    steps = [*[submitted(4)] * 3, ("sleep", 0.01), *behind, ("end", outcome), ("sleep", 0.01)]
    world = run(happen(steps, [], []), loop_factory=VirtualLoop)
    assert world.waiters[0].ends != ["answered"] or outcome == "worker dies"
    assert [waiter.ends for waiter in world.waiters[1:]] == [["answered"]] * (len(world.waiters) - 1)
