"""A discrete-event simulation of a gateway, its workers and its clients around the real core.

The core, its policies and its estimates run as in the live gateway, and learn everything during the run.
Time, arrivals, transport and the work of the workers are simulated; the gateway's CPU time is not.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from uncork_dispatcher.actions import Abandon, Action, Lost, Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator.lengths import body_bytes
from uncork_dispatcher.simulator.scenario import Answered, Run, Scenario, SimulatedBatch
from uncork_dispatcher.simulator.traffic import Clients

_API = "simulated"


class _Sent(NamedTuple):
    """A batch that the core has sent and whose results have not arrived.

    ``rows`` and ``padded`` are its true sizes, which the core may not know. The worker is free for it at
    ``begins``, and ends it ``seconds`` later; its model runs for ``model_s``.
    """

    batch: Batch[int]
    rows: float
    padded: float
    begins: float
    seconds: float
    model_s: float
    prepare_s: float
    """How long its first stage takes; it may overlap with the batch before."""


def simulate(scenario: Scenario) -> Run:
    """Run a scenario until every request has been answered, shed or lost."""
    return _Simulation(scenario).run()


class _Simulation:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._random = random.Random(scenario.seed)
        # Of their own: the other numbers depend on the order of batches, and with it on the policy.
        self._random_lengths = random.Random(f"{scenario.seed} lengths")
        self._core = Dispatcher()
        self._core.set_api(
            ApiRules(
                name=_API,
                goal_s=scenario.goal_s,
                max_batch_rows=scenario.limit_rows,
                policy=scenario.policy,
                bulk_goal_s=scenario.bulk_goal_s if scenario.bulk else None,
                max_queue_rows=10**9,
                max_queue_requests=10**9,
            )
        )
        self._events: list[tuple[float, int, Callable[[int, float], None], int]] = []
        self._sequence = 0
        self._submitted = 0
        self._bulk = 0
        self._bulk_left: dict[int, int] = {}
        """By client of bulk: the parts of its request that have not ended."""
        self._bulk_rows: dict[int, float] = {}
        self._arrivals: dict[int, float] = {}
        self._random_bytes = random.Random(f"{scenario.seed} bytes")
        self._random_groups = random.Random(f"{scenario.seed} groups")
        self._lengths: dict[int, float] = {}
        self._clients: dict[int, int] = {}
        self._connections: dict[int, int] = {}
        self._free: list[int] = []
        self._to_poll = True
        self._sent: dict[int, _Sent] = {}
        self._busy_until = [0.0] * scenario.workers
        """When each worker has executed all its batches."""
        self._prepares_until = [0.0] * scenario.workers
        """When each worker has prepared all its batches."""
        self._writes_until = 0.0
        """When the gateway has written the responses of the last batch."""
        self._gateway_busy_until = 0.0
        """When the gateway has done its work on all answered requests of a closed loop."""
        self._result = Run()
        self._closed = scenario.arrivals if isinstance(scenario.arrivals, Clients) else None
        self._times = () if isinstance(scenario.arrivals, Clients) else scenario.arrivals
        self._to_submit = scenario.requests if self._closed else len(self._times)

    def run(self) -> Run:
        for worker in range(self._scenario.workers):
            self._ready(worker, 0.0)
        for loss in self._scenario.losses:
            self._at(loss.at, self._lose, loss.worker)
            self._at(loss.back_at, self._ready, loss.worker)
        if self._closed:
            for client in range(self._closed.count):
                self._at(self._closed.pause(self._random), self._send, client)
        if self._scenario.bulk:
            for client in range(self._scenario.bulk.count):
                self._at(self._scenario.bulk.pause(self._random), self._submit_bulk, client)
        self._loop()
        return self._result

    def _loop(self) -> None:
        events, times, core = self._events, self._times, self._core
        arrived, arrivals = 0, len(times)
        wakeup = math.inf
        while True:
            # The end of a batch whose worker died is no event.
            while events and events[0][2] == self._finish and events[0][3] not in self._sent:
                heapq.heappop(events)
            now = max(times[arrived], self._writes_until) if arrived < arrivals else math.inf
            if events and events[0][0] < now:
                now = events[0][0]
            if wakeup < now:
                now = wakeup
            if now == math.inf:
                return
            while arrived < arrivals and times[arrived] <= now:
                self._submit(arrived, now)
                arrived += 1
            self._to_poll = True
            while events and events[0][0] <= now:
                _, _, happen, what = heapq.heappop(events)
                self._to_poll = True
                happen(what, now)
            if self._to_poll:
                self._poll(now)
            wakeup = core.next_wakeup()

    def _poll(self, now: float) -> None:
        self._to_poll = False
        while actions := self._core.poll(now):
            self._execute(actions, now)

    def _at(self, time: float, happen: Callable[[int, float], None], what: int) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time, self._sequence, happen, what))

    # Requests

    def _send(self, client: int, now: float) -> None:
        if self._submitted < self._to_submit:
            self._submit(client, now)

    def _submit(self, client: int, now: float) -> None:
        self._submitted += 1
        request = self._submitted
        scenario = self._scenario
        rows, number, size_bytes = scenario.rows(self._random) if scenario.rows else 1.0, None, 0
        if scenario.lengths:
            length = self._lengths[request] = scenario.lengths(self._random_lengths)
            rows, number, size_bytes = self._known_size(length)
        refused = self._core.submit(
            request,
            api=_API,
            now=now,
            group=scenario.groups(client, self._random_groups) if scenario.groups else None,
            rows=rows,
            count=number,
            size_bytes=size_bytes,
            source=self._source(client, request),
        )
        self._clients[request] = client
        self._arrivals[request] = now if self._closed else self._times[client]
        if refused is not None:
            self._refuse(refused, now)

    def _submit_bulk(self, client: int, now: float) -> None:
        """Send the next request of a client of bulk, unless the other requests have all been sent."""
        if self._submitted >= self._to_submit:
            return
        scenario = self._scenario
        group = scenario.groups(client, self._random_groups) if scenario.groups else None
        parts = self._core.bulk_parts(_API, rows=scenario.bulk_rows, size_bytes=0, now=now)
        rows = scenario.bulk_rows / parts
        self._bulk_left[client] = parts
        for _ in range(parts):
            self._bulk += 1
            self._clients[-self._bulk] = client
            self._arrivals[-self._bulk] = now
            self._bulk_rows[-self._bulk] = rows
            refused = self._core.submit(
                -self._bulk,
                api=_API,
                now=now,
                group=group,
                rows=rows,
                source=("bulk", client),
                bulk=True,
            )
            if refused is not None:
                self._refuse(refused, now)

    def _known_size(self, length: float) -> tuple[float, int | None, int]:
        """Return the rows or cost, number of rows and bytes of a request, as far as the core knows them."""
        match self._scenario.known:
            case "costs":
                return length, 1, 0
            case "totals":
                return length, None, 0
            case "bytes":
                return 1.0, None, body_bytes(length, self._random_bytes)
            case _:
                return 1.0, None, 0

    def _source(self, client: int, request: int) -> int | None:
        """Return the key by which the core recognizes the client of a request; None if it cannot."""
        if self._scenario.sources == "clients":
            return client if self._closed else None
        if self._scenario.sources == "unknown":
            return None
        # There are as many connections in use as requests; so a new one gets the next number.
        self._connections[request] = self._free.pop() if self._free else len(self._connections)
        return self._connections[request]

    def _ended(self, request: int, now: float) -> Answered:
        """End a request, schedule the next one of its client, and return it as an answered request."""
        client = self._clients.pop(request)
        if request < 0:
            assert self._scenario.bulk is not None
            self._bulk_left[client] -= 1
            if not self._bulk_left[client]:
                self._at(now + self._scenario.bulk.pause(self._random), self._submit_bulk, client)
            return Answered(self._arrivals.pop(request), now, self._bulk_rows.pop(request), bulk=True)
        if request in self._connections:
            self._free.append(self._connections.pop(request))
        if self._closed:
            answered_at = max(now, self._gateway_busy_until)
            self._gateway_busy_until = answered_at + self._closed.request_s
            self._at(answered_at + self._closed.pause(self._random), self._send, client)
        return Answered(self._arrivals.pop(request), now, self._lengths.pop(request, 1.0))

    def _refuse(self, shed: Shed, now: float) -> None:
        self._result.shed.append((now, shed))
        self._ended(shed.request, now)

    # Actions of the core

    def _execute(self, actions: Sequence[Action], now: float) -> None:
        for action in actions:
            if isinstance(action, Batch):
                self._start(action, now)
            elif isinstance(action, Shed):
                self._refuse(action, now)
            elif isinstance(action, Lost):
                self._result.lost += 1
                self._ended(action.request, now)
            elif isinstance(action, Abandon):
                worker = action.batch.worker
                self._take_from(worker)
                for request in action.batch.requests:
                    self._result.lost += 1
                    self._ended(request, now)
                # A hung worker is replaced at once.
                self._at(now, self._ready, worker)

    # Workers

    def _start(self, batch: Batch[int], now: float) -> None:
        worker = batch.worker
        rows, padded = self._true_size(batch) if self._scenario.lengths else (batch.rows, batch.padded)
        way_s = self._scenario.transport_s / 2
        service, arrives = self._scenario.service, now + way_s
        begins = max(arrives, self._busy_until[worker])
        # With lengths, each request is one row, and `rows` is a total length.
        prepare_s = service.prepare_s * (len(batch.requests) if self._scenario.lengths else rows)
        prepared_at = self._prepares_until[worker] = max(arrives, self._prepares_until[worker]) + prepare_s
        model_s = service.draw(rows, padded, worker=worker, random_=self._random)
        seconds = max(0.0, prepared_at - begins) + model_s if prepare_s else model_s
        self._busy_until[worker] = begins + seconds
        self._sent[batch.number] = _Sent(batch, rows, padded, begins, seconds, model_s, prepare_s)
        self._at(begins + seconds + way_s, self._finish, batch.number)

    def _true_size(self, batch: Batch[int]) -> tuple[float, float]:
        """Return the total length of the rows of a batch, without padding and padded."""
        most = self._scenario.service.truncated_at
        lengths = [min(self._lengths[request], most) for request in batch.requests]
        rows, longest = sum(lengths), max(lengths)
        return rows, rows + sum([longest - length for length in lengths])

    def _finish(self, number: int, now: float) -> None:
        if number not in self._sent:
            return  # its worker dies at the same moment
        batch, rows, padded, begins, seconds, model_s, prepare_s = self._sent.pop(number)
        chunks = [(batch.rows, max(model_s, prepare_s))] if self._scenario.transport_s or prepare_s else ()
        self._core.batch_done(
            number, status="worked", now=now, chunks=chunks, prepare_s=prepare_s if prepare_s else None
        )
        # As the shell does: one poll before the callers get their results, the others after that.
        if self._core.has_queued:
            self._execute(self._core.poll(now), now)
        self._to_poll = self._core.next_wakeup() <= now
        answered = self._result.answered
        written_at = now
        for request in batch.requests:
            written_at += self._scenario.response_s
            answered.append(self._ended(request, written_at))
        if self._scenario.response_s:
            self._writes_until = written_at
            self._core.responses_written(_API, written_at - now, now=now)
        self._result.batches.append(
            SimulatedBatch(
                batch.worker,
                begins,
                seconds,
                rows,
                padded,
                len(batch.requests),
                batch.reason,
                batch.predicted_s,
            )
        )

    def _lose(self, worker: int, now: float) -> None:
        self._core.worker_lost(worker, now=now)
        for batch, *_ in self._take_from(worker):
            self._result.cut_off += [self._arrivals[request] for request in batch.requests]

    def _take_from(self, worker: int) -> list[_Sent]:
        taken = [sent for sent in self._sent.values() if sent.batch.worker == worker]
        for sent in taken:
            del self._sent[sent.batch.number]
        return taken

    def _ready(self, worker: int, now: float) -> None:
        self._busy_until[worker] = self._prepares_until[worker] = now
        self._core.worker_ready(worker, now=now, host=worker % self._scenario.hosts, takes_ahead=True)
