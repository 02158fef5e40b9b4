"""Whatever happens to the core, in any order, it keeps its promises: see ``core_model.py``."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.dispatcher.core.core_model import TRANSITIONS, Model, Request
from uncork_dispatcher.actions import BatchStatus, Expired
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiStats

SETTINGS = settings(
    max_examples=60,
    stateful_step_count=60,
    report_multiple_bugs=False,
    phases=[Phase.generate],  # add Phase.shrink for the shortest way to a failure: it takes minutes
)
WORKERS = st.integers(0, 2)
HOSTS = st.sampled_from("xy")
ANY = st.integers(0, 10_000)
"""Points at one of however many there are."""
STATUSES: st.SearchStrategy[BatchStatus] = st.sampled_from(["worked", "worked", "worked", "failed"])
SOON = st.sampled_from([0.0, 0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 2.0]) | st.integers(0, 200_000).map(
    lambda microseconds: microseconds / 1e6
)
PATIENCE = st.sampled_from([math.inf, math.inf, 0.15, 0.25, 1.0]) | st.floats(-0.01, 0.5)
POLL = st.sampled_from([True, True, True, False])
"""Most inputs are followed by a poll; several may come in before one."""


def rules_of(policy: str, *, fair: bool, concurrent: str = "") -> list[ApiRules]:
    """An api with tight limits and one with loose ones that may not be run again.

    One of them may have two slots of its own at each worker.
    """
    tight = ApiRules(
        name="tight",
        policy=policy,
        goal_s=0.1,
        max_batch_rows=8,
        max_batch_bytes=100,
        timeout_s=0.5,
        max_queue_rows=25,
        max_queue_bytes=300,
        fair=fair,
    )
    loose = ApiRules(name="loose", policy=policy, goal_s=0.4, timeout_s=1.0, idempotent=False)
    return [replace(one, concurrency=2) if one.name == concurrent else one for one in (tight, loose)]


class CoreMachine(RuleBasedStateMachine):
    """Does everything that a driver may do to a core, and keeps the books of it."""

    policy = "cork"
    fair = False
    concurrent = ""

    def __init__(self) -> None:
        super().__init__()
        self.core, self.books = Dispatcher(), Model()
        self.now = 0.0
        self.submitted = 0
        for rules in rules_of(self.policy, fair=self.fair, concurrent=self.concurrent):
            self._set_api(rules)
        self.worker_ready(worker=0, host="x", takes_ahead=True, poll=True)

    def _set_api(self, rules: ApiRules) -> None:
        self.core.set_api(rules)
        self.books.rules[rules.name] = rules

    def _stats(self) -> list[ApiStats]:
        return self.core.stats(now=self.now)

    def _poll(self, wanted: bool = True) -> None:
        if wanted:
            while actions := self.core.poll(self.now):
                self.books.entered(actions, now=self.now, stats=self._stats())
                self._expire([action.request for action in actions if isinstance(action, Expired)])
            self.books.at_rest(self.now, self.core.next_wakeup())
            assert self.core.is_empty == (not self.books.queued() and not self.books.running)

    def _expire(self, requests: list[int]) -> None:
        """Cancel, extend or ignore running requests whose time has passed."""
        for request in requests:
            match request % 3:
                case 0:
                    self.core.cancel(request, now=self.now)
                    self.books.cancelled(request)
                case 1:
                    expires_at = math.inf if request % 2 else self.now + 0.1
                    self.core.extend(request, expires_at=expires_at, now=self.now)
                    self.books.extended(request, expires_at)

    @rule(
        api=st.sampled_from(["tight", "tight", "loose"]),
        key=st.sampled_from([None, None, "other"]),
        group=st.sampled_from([None, None, "en", "other"]),
        flow=st.sampled_from("xxyz"),
        rows=st.integers(1, 4) | st.integers(1, 12),
        length=st.sampled_from([1, 1, 1, 2, 3, 7]),
        size_bytes=st.integers(0, 30) | st.integers(0, 150),
        patience=PATIENCE,
        copies=st.integers(1, 4),
        poll=POLL,
    )
    def submit(
        self,
        *,
        api: str,
        key: str | None,
        flow: str,
        rows: int,
        size_bytes: int,
        patience: float,
        copies: int,
        poll: bool,
        length: int = 1,
        group: str | None = None,
    ) -> None:
        """Some alike come at once."""
        for _ in range(copies):
            self.submitted += 1
            expires_at = self.now + patience
            deadline = min(self.now + self.books.rules[api].goal_s, expires_at)
            request = Request(
                self.submitted, api, key, rows, length, size_bytes, deadline, expires_at, flow, group
            )
            refused = self.core.submit(
                request.number,
                api=api,
                key=key,
                group=group,
                rows=request.rows,
                count=rows,
                size_bytes=size_bytes,
                expires_at=expires_at,
                flow=flow,
                now=self.now,
            )
            [stats] = [each for each in self._stats() if each.name == api]
            self.books.submitted(request, refused, now=self.now, stats=stats)
            if self.books.displacing:
                self._poll()  # it reports the requests that are not queued any more
        self._poll(poll)

    @rule(
        api=st.sampled_from(["tight", "loose"]),
        keys=st.integers(2, 30),
        rows=st.integers(1, 3),
        patience=PATIENCE,
        poll=POLL,
    )
    def submit_many_keys(self, *, api: str, keys: int, rows: int, patience: float, poll: bool) -> None:
        """Each request has a group of its own, more than the core asks a policy about at once."""
        for key in range(keys):
            self.submit(
                api=api,
                key=f"key {key % 2}",
                group=f"group {key}",
                flow="x",
                rows=rows,
                size_bytes=1,
                patience=patience,
                copies=1,
                poll=False,
            )
        self._poll(poll)

    @precondition(lambda self: self.submitted)
    @rule(which=ANY, poll=POLL)
    def cancel(self, *, which: int, poll: bool) -> None:
        """Any request: queued, running, ended or never submitted."""
        number = self.submitted - which % (self.submitted + 1)  # 0 was never submitted
        self.core.cancel(number, now=self.now)
        self.books.cancelled(number)
        self._poll(poll)

    @rule(worker=WORKERS, host=HOSTS, takes_ahead=st.booleans(), poll=POLL)
    def worker_ready(self, *, worker: int, host: str, takes_ahead: bool = True, poll: bool) -> None:
        """A new one, or one that comes back, maybe on another host."""
        if worker not in self.books.workers and not self.books.at(worker):
            self.core.worker_ready(worker, now=self.now, place=worker, host=host, takes_ahead=takes_ahead)
            self.books.ready(worker, now=self.now, host=host, takes_ahead=takes_ahead)
        self._poll(poll)

    @rule(worker=WORKERS, busy=st.booleans(), ends=st.booleans(), back=st.booleans(), poll=POLL)
    def worker_retired(self, *, worker: int, busy: bool, ends: bool, back: bool, poll: bool) -> None:
        """An idle one, a busy one, or one that is gone; it may come back after its batch ends."""
        running = list(self.books.running.values())
        if busy and running:
            worker = running[0].start.worker
        self.core.worker_retired(worker, now=self.now)
        self.books.retired(worker)
        self._poll(poll)
        if ends and self.books.running:  # the poll may have given up what ran
            self.batch_done(which=0, status="worked", took=0.0, poll=poll)
        if back:
            self.worker_ready(worker=worker, host="y", poll=poll)

    @rule(rows=st.integers(1, 8), gap_s=st.sampled_from([0.0, 0.001, 0.02]), back=st.booleans())
    def host_dies(self, *, rows: int, gap_s: float, back: bool) -> None:
        """Its two workers are lost one after another, while the third runs a batch."""
        for worker, host in enumerate("xxy"):
            self.worker_lost(worker=worker, poll=False)
            self.worker_ready(worker=worker, host=host, poll=True)
            self.submit(
                api="tight",
                key=None,
                flow="x",
                rows=rows,
                size_bytes=1,
                patience=math.inf,
                copies=1,
                poll=True,
            )
        for worker in (0, 1):
            self.time_passes(seconds=gap_s, poll=True)
            self.worker_lost(worker=worker, poll=True)
        if back:
            self.worker_ready(worker=0, host="x", poll=True)

    @rule(worker=WORKERS, delay_s=SOON, failures=st.sampled_from([0, 0, 1, 2]), poll=POLL)
    def worker_expected(self, *, worker: int, delay_s: float, failures: int, poll: bool) -> None:
        """Whether it is gone or not."""
        self.core.worker_expected(worker, now=self.now, delay_s=delay_s, failures=failures)
        self.books.expected(worker, at=self.now + delay_s, failures=failures)
        self._poll(poll)

    @rule(startup_s=SOON, poll=POLL)
    def all_workers_restart(self, *, startup_s: float, poll: bool) -> None:
        """All die; how long a start takes is known if any worker was expected before."""
        for worker in range(3):
            self.worker_lost(worker=worker, poll=False)
        for worker in (0, 1):
            self.worker_expected(worker=worker, delay_s=0.0, failures=0, poll=poll)
        self.time_passes(seconds=startup_s, poll=poll)
        self.worker_ready(worker=0, host="x", poll=poll)

    @rule(worker=st.sampled_from([0, 1, 2, 2, 7]), poll=POLL)
    def worker_lost(self, *, worker: int, poll: bool) -> None:
        """An idle one, a busy one, or one that is gone."""
        self.core.worker_lost(worker, now=self.now)
        self.books.lost_worker(worker, now=self.now)
        self._poll(poll)

    @precondition(lambda self: self.books.running)
    @rule(which=ANY, status=STATUSES, took=SOON, share=st.sampled_from([0.0, 0.2, 1.0]), poll=POLL)
    def batch_done(
        self, *, which: int, status: BatchStatus, took: float, share: float = 0.0, poll: bool
    ) -> None:
        """One that runs, or one ahead, a little later, well or badly; transport takes a share of the time."""
        self.now += took
        running = list(self.books.running)
        number = running[which % len(running)]
        chunks = [(self.books.running[number].start.rows, took * (1 - share))] if share else ()
        assert self.core.batch_done(number, status=status, now=self.now, chunks=chunks)
        self.books.done(number, status, now=self.now)
        if share:
            transport_s = max(self.core.sample(name).transport_s for name in self.books.rules)
            self.books.transport_s = max(self.books.transport_s, transport_s)
        self._poll(poll)

    @rule(
        ends=st.lists(st.sampled_from(["first", "last", "timer", "lost"]), max_size=4), single=st.booleans()
    )
    def crowd(self, *, ends: list[str], single: bool) -> None:
        """More comes than one batch can take, and batches end, or are lost, one after another."""
        for worker in (1, 2) if single else ():
            self.worker_lost(worker=worker, poll=True)
        self.worker_ready(worker=0, host="x", poll=True)
        self.traffic(batches=3, seconds=0.02)
        for _ in range(3):
            self.submit(
                api="tight", key=None, flow="x", rows=8, size_bytes=1, patience=math.inf, copies=1, poll=True
            )
        for end in ends:
            if end == "timer":
                self.now = min(max(self.now, self.core.next_wakeup()), self.now + 1.0)
                self._poll()
            elif end == "lost":
                self.worker_lost(worker=0, poll=True)
                self.worker_ready(worker=0, host="x", poll=True)
            elif self.books.running:
                self.batch_done(which=0 if end == "first" else -1, status="worked", took=0.0, poll=True)

    @rule(batches=st.integers(1, 6), seconds=st.sampled_from([0.02, 0.05, 0.2]))
    def traffic(self, *, batches: int, seconds: float) -> None:
        """Single requests, each answered before the next comes: the estimate is earned."""
        for _ in range(batches):
            self.submit(
                api="tight", key=None, flow="x", rows=1, size_bytes=1, patience=math.inf, copies=1, poll=True
            )
            if self.books.running:
                self.batch_done(which=0, status="worked", took=seconds, share=0.2, poll=True)

    @rule(api=st.sampled_from(["tight", "loose"]), worker=WORKERS, seconds=SOON, poll=POLL)
    def profile(self, *, api: str, worker: int, seconds: float, poll: bool) -> None:
        """A worker has warmed up; some of the sizes are beyond the limit."""
        chunks = [(rows, seconds * (1 + rows)) for rows in (1, 2, 4, 8, 16)]
        self.core.profile(api, worker, chunks, now=self.now)
        self._poll(poll)

    @rule(number=st.integers(0, 40))
    def batch_done_too_late(self, *, number: int) -> None:
        """One that never ran, came back already, or was given up."""
        if number not in self.books.running:
            assert not self.core.batch_done(number, status="worked", now=self.now)

    @rule(seconds=SOON, poll=POLL)
    def time_passes(self, *, seconds: float, poll: bool) -> None:
        """The driver may be late."""
        self.now += seconds
        self._poll(poll)

    @precondition(lambda self: self.core.next_wakeup() < math.inf)
    @rule()
    def timer_fires(self) -> None:
        """The driver keeps its appointment."""
        self.now = max(self.now, self.core.next_wakeup())
        self._poll()

    @rule(seconds=st.floats(1e-6, 10))
    def time_goes_back(self, *, seconds: float) -> None:
        self.core.cancel(0, now=self.now)
        with pytest.raises(ValueError, match="time went back"):
            self.core.poll(self.now - seconds)

    @rule(limit=st.integers(1, 8))
    def rules_change(self, *, limit: int) -> None:
        """A limit may change while requests are queued."""
        self._set_api(replace(self.books.rules["tight"], max_batch_rows=limit))

    @rule(api=st.sampled_from(["tight", "loose"]))
    def api_is_removed(self, *, api: str) -> None:
        """Only one without requests is; what it knew is gone when it is added again."""
        self._poll()
        running = [batch.start.api for batch in self.books.running.values()]
        is_idle = not self.books.queued(api) and api not in running
        assert self.core.remove_api(api) == is_idle
        if is_idle:
            assert api not in [each.name for each in self._stats()]
            self._set_api(self.books.rules[api])

    @precondition(lambda self: self.submitted > 30)
    @rule()
    def drain(self) -> None:
        """The gateway drains; other events still happen."""
        self.core.drain(now=self.now)
        self.books.draining = True
        self._poll()

    @invariant()
    def totals_are_right(self) -> None:
        """After every step, polled or not."""
        self.books.agrees(self._stats())
        queued, running, idle = len(self.books.queued()), len(self.books.running), len(self.books.idle())
        assert repr(self.core) == f"<Dispatcher queued={queued} running={running} idle={idle}>"

    def teardown(self) -> None:
        """A drained core ends empty, and every request has ended in exactly one way."""
        self.core.drain(now=self.now)
        self.books.draining = True
        # A key that no worker had: one that has retired may still finish a batch.
        self.worker_ready(worker=1000, host="x", poll=True)
        while self.books.running:
            for number in list(self.books.running):
                self.batch_done(which=0, status="worked", took=0.0, poll=False)
                assert number not in self.books.running
            self._poll()
        assert self.core.is_empty
        assert self.core.next_wakeup() == math.inf
        assert not {request.state for request in self.books.requests.values()} & TRANSITIONS.keys()


@pytest.mark.long_run
@pytest.mark.parametrize(
    ("name", "shared", "beside"),
    [
        ("cork", False, ""),
        ("cork", True, ""),
        ("cork", False, "tight"),
        ("cork", True, "loose"),
        ("cork-classic", False, ""),
        ("fixed:25", True, ""),
        ("fixed:1000", False, ""),
        ("fixed:1000", False, "tight"),
        ("none", False, ""),
    ],
)
def test_the_core_keeps_its_promises(name: str, shared: bool, beside: str) -> None:
    """With every policy, and with one that holds beyond every goal; fair or not, with own slots or not."""

    class Machine(CoreMachine):
        policy = name
        fair = shared
        concurrent = beside

    run_state_machine_as_test(Machine, settings=SETTINGS)
