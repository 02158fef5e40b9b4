"""Stages of batches that overlap in a worker: the same responses as without, in order, and never at once."""

import json
import math
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loops import HANG_S
from tests.workers.fake_gateway import Connection
from tests.workers.run_batch import batch_of, run_batch
from uncork_workers.definition.adapters import Json, Text
from uncork_workers.definition.outputs.responses import Rejected, Response
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.context import context
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.process.hosted_service import HostedService, Settings
from uncork_workers.process.stages import Overlap, OverlappingStages
from uncork_workers.wire.frames import FrameError, encode_frame, split_payload
from uncork_workers.wire.messages import Batch, Reply


class Borrowed:
    """Raises if two threads use it at once, as a fast tokenizer does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.threads = set[str]()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("Already borrowed")
        try:
            self.threads.add(threading.current_thread().name)
            yield
        finally:
            self._lock.release()


class Numbers(Service):
    """Rows name the stage in which they fail, and what they fail with."""

    def setup(self) -> None:
        self.tokenizer, self.model, self.names = Borrowed(), Borrowed(), Borrowed()

    def tokenize(self, rows: list[Any]) -> dict[str, Any]:
        with self.tokenizer():
            _fail(rows, "prepare")
            return {"rows": list(rows), "context": (context().batch_id, len(context().parameters))}

    def labels(self, results: dict[str, Any]) -> list[Any]:
        with self.names():
            _fail(results["rows"], "finish")
            assert results["context"] == (context().batch_id, len(context().parameters))
            return [Rejected(409, "no") if row == "reject" else f"{row}!" for row in results["rows"]]

    @api(input=Text(), prepare=tokenize, finish=labels)
    def predict(self, prepared: dict[str, Any]) -> dict[str, Any]:
        with self.model():
            _fail(prepared["rows"], "call")
            return prepared

    @api(input=Json())
    def plain(self, rows: list[Any]) -> list[Any]:
        with self.model():
            return rows


def _fail(rows: Sequence[Any], stage: str) -> None:
    if f"{stage} memory" in rows and len(rows) > 2:
        raise MemoryError
    if stage in rows:
        raise ValueError(f"a row fails in {stage}")


Call = tuple[Batch, list[bytes]]


def calls_of(batches: Sequence[Sequence[Any]], api: str = "predict", **fields: Any) -> list[Call]:
    calls = []
    for number, rows in enumerate(batches, start=1):
        bodies = [json.dumps(row).encode() for row in rows]
        batch = batch_of(api, *bodies, number=number, id=f"b{number}", **fields)
        calls.append((batch, bodies))
    return calls


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all batches overlap, whether it pays or not."""
    monkeypatch.setattr(Overlap, "observe", lambda *_, **__: None)
    monkeypatch.setattr(Overlap, "is_on", True, raising=False)
    monkeypatch.setattr(Overlap, "__init__", lambda self: None)


def served(
    service: Service, calls: Sequence[Call], *, most_ahead: int = 2, due: list[float] | None = None
) -> list[tuple[Reply, list[bytes]]]:
    """Return the replies of a worker that has up to two batches at a time."""
    ours, theirs = socket.socketpair()

    def talk() -> list[tuple[Reply, list[bytes]]]:
        worker, replies, sent = Connection(ours), list[tuple[Reply, list[bytes]]](), 0
        with ours:
            while len(replies) < len(calls):
                while sent < min(len(calls), len(replies) + most_ahead):
                    worker.send(calls[sent])
                    sent += 1
                message, payload = worker.next()
                assert isinstance(message, Reply)
                replies.append((message, split_payload(payload, message.lengths)))
        return replies

    with ThreadPoolExecutor(1) as pool, closing(GatewayConnection(theirs)) as gateway:
        talking = pool.submit(talk)
        with closing(Executor(service)) as executor:
            due = [] if due is None else due
            OverlappingStages(gateway, executor, due).serve()
            assert due == []
        return talking.result(HANG_S)


def alone(service: Service, calls: Sequence[Call]) -> list[tuple[Reply, list[bytes]]]:
    with closing(Executor(service)) as executor:
        return [executor.run(*call) for call in calls]


def shown(replies: Sequence[tuple[Reply, list[bytes]]]) -> list[Any]:
    """What clients and operators get, without times and error ids."""
    return [
        (
            reply.batch,
            reply.worked,
            reply.statuses,
            [body[:30] for body in bodies],
            [(one.error, one.place, one.requests) for one in reply.exceptions],
            [cost for cost, _ in reply.chunks],
            reply.reasons,
            reply.limit,
            reply.memory_failures,
        )
        for reply, bodies in replies
    ]


ROWS = ["a", "b", "reject", "prepare", "call", "finish", 7]
NEEDS_MEMORY = ["prepare memory", "call memory", "finish memory"]


def batches_of(rows: Sequence[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(st.sampled_from(rows), min_size=1, max_size=6), min_size=1, max_size=6)


def fresh() -> Numbers:
    service = Numbers()
    service.setup()
    return service


@pytest.mark.usefixtures("always")
@given(batches=batches_of(ROWS), limit=st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_replies_are_those_of_a_worker_without_overlap(batches: list[list[Any]], limit: int) -> None:
    calls = calls_of(batches, limit_rows=limit)

    assert shown(served(fresh(), calls)) == shown(alone(fresh(), calls))


@pytest.mark.usefixtures("always")
@given(batches=batches_of(ROWS + NEEDS_MEMORY), limit=st.integers(3, 6))
@settings(max_examples=50, deadline=None)
def test_responses_stay_when_memory_runs_out(batches: list[list[Any]], limit: int) -> None:
    # What is learned may differ: a batch fails before or after the one ahead has run.
    calls = calls_of(batches, limit_rows=limit)
    overlapping, serial = served(fresh(), calls), alone(fresh(), calls)

    assert [one[2:4] for one in shown(overlapping)] == [one[2:4] for one in shown(serial)]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("many", [400, pytest.param(100_000, marks=pytest.mark.long_run)])
def test_no_stage_runs_at_the_same_time_as_itself(many: int) -> None:
    service = fresh()
    numbers = random.Random(1)
    rows = ["a"] * 40 + ["prepare", "call", "finish"]
    batches = [numbers.choices(rows, k=numbers.randint(1, 8)) for _ in range(many)]

    replies = served(service, calls_of(batches))

    for batch, (reply, _) in zip(batches, replies, strict=True):
        fails = [500 if row in ("prepare", "call", "finish") else 200 for row in batch]
        assert reply.statuses == fails
        assert not any("borrowed" in one.message for one in reply.exceptions)
    assert service.tokenizer.threads == {"uncork prepare", threading.current_thread().name}
    assert service.model.threads == {threading.current_thread().name}
    assert service.names.threads == {"uncork finish", threading.current_thread().name}


class Meeting(Service):
    """Each stage of a batch waits for a stage of a neighbour, so that it ends only if both overlap."""

    def setup(self) -> None:
        self.called, self.prepared = threading.Event(), threading.Event()
        self.finishing, self.called_next = threading.Event(), threading.Event()

    def first_half(self, rows: list[Any]) -> list[Any]:
        if rows == ["second"]:
            assert self.called.wait(HANG_S)
            self.prepared.set()
        return rows

    def second_half(self, rows: list[Any]) -> list[Any]:
        if rows == ["first"]:
            self.finishing.set()
            assert self.called_next.wait(HANG_S)
        return rows

    @api(input=Json(), prepare=first_half, finish=second_half)
    def predict(self, rows: list[Any]) -> list[Any]:
        if rows == ["first"]:
            self.called.set()
            assert self.prepared.wait(HANG_S)
        elif rows == ["second"]:
            assert self.finishing.wait(HANG_S)
            self.called_next.set()
        return rows


@pytest.mark.usefixtures("always")
def test_a_batch_is_prepared_and_the_one_before_finished_while_the_handler_runs() -> None:
    service = Meeting()
    service.setup()

    replies = served(service, calls_of([["first"], ["second"]]))

    assert [bodies for _, bodies in replies] == [[b'"first"'], [b'"second"']]
    assert all(reply.overlaps and reply.stages_s is not None for reply, _ in replies)


class Timed(Service):
    """Notes how much time each batch has left in its last stage; the second arrives while the first runs."""

    def setup(self) -> None:
        self.prepared, self.due, self.left = threading.Event(), list[float](), list[float]()

    def first_half(self, rows: list[Any]) -> list[Any]:
        if rows == ["second"]:
            self.prepared.set()
        return rows

    def second_half(self, rows: list[Any]) -> list[Any]:
        self.left.append(min(self.due) - time.monotonic())
        return rows

    @api(input=Json(), prepare=first_half, finish=second_half)
    def predict(self, rows: list[Any]) -> list[Any]:
        assert self.prepared.wait(HANG_S)
        return rows


@pytest.mark.usefixtures("always")
def test_the_time_of_a_batch_begins_when_the_one_before_has_ended() -> None:
    """As for the gateway; not when that one should have ended at the latest."""
    service = Timed()
    service.setup()

    served(service, calls_of([["first"], ["second"]], timeout_s=1e6), due=service.due)

    assert len(service.left) == 2
    assert max(service.left) < 1.5e6


class Cut(Service):
    """The connection breaks while the first batch is finished and the second one has run."""

    def setup(self) -> None:
        self.prepared, self.finishing, self.lost = threading.Event(), threading.Event(), threading.Event()
        self.fails = False

    def first_half(self, rows: list[Any]) -> list[Any]:
        if rows == ["second"]:
            self.prepared.set()
        return rows

    def second_half(self, rows: list[Any]) -> list[Any]:
        self.thread = threading.current_thread()
        self.finishing.set()
        assert self.lost.wait(HANG_S)
        if self.fails:
            raise ValueError("as planned")
        return rows

    @api(input=Json(), prepare=first_half, finish=second_half)
    def predict(self, rows: list[Any]) -> list[Any]:
        assert (self.prepared if rows == ["first"] else self.finishing).wait(HANG_S)
        return rows


@pytest.mark.usefixtures("always", "project")
@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_of_a_lost_connection_is_not_overdue_later(fails: bool) -> None:
    """Its thread may end when the worker has dialed again, which would then be ended as overdue.

    It ends even if the last stage fails, after which the main thread would run parts of the batch.
    """
    ours, theirs = socket.socketpair()
    with ours, closing(HostedService(f"{__name__}:Cut")) as hosted:
        Connection(ours).send(*calls_of([["first"], ["second"]]), (Reply(1, True, 0, [], [], []), []))
        with closing(GatewayConnection(theirs)) as gateway, pytest.raises(FrameError, match="got Reply"):
            hosted.serve(gateway, 0, Settings(0.0, []))
        service = cast(Cut, hosted._service)
        service.fails = fails
        service.lost.set()
        service.thread.join(HANG_S)

        assert not service.thread.is_alive()
        assert hosted.due_at == math.inf


class Hurried(Service):
    """The second batch is finished in the main thread while the other thread replies to the first."""

    def setup(self) -> None:
        self.queued, self.replying, self.finished = threading.Event(), threading.Event(), threading.Event()

    def second_half(self, rows: list[Any]) -> list[Any]:
        if rows == ["second"]:
            self.finished.set()
        return rows

    @api(input=Json(), finish=second_half)
    def predict(self, rows: list[Any]) -> list[Any]:
        assert (self.queued if rows == ["first"] else self.replying).wait(HANG_S)
        return rows


@pytest.mark.usefixtures("always")
def test_a_reply_waits_until_the_one_before_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    service, reply = Hurried(), GatewayConnection.reply
    service.setup()
    batches = GatewayConnection.batches

    def read(gateway: GatewayConnection) -> Iterator[Any]:
        for number, call in enumerate(batches(gateway)):
            yield call
            if number == 1:
                service.queued.set()

    def send(gateway: GatewayConnection, head: Reply, bodies: Sequence[bytes]) -> None:
        if head.batch == 1:
            service.replying.set()
            assert service.finished.wait(HANG_S)
        reply(gateway, head, bodies)

    monkeypatch.setattr(GatewayConnection, "batches", read)
    monkeypatch.setattr(GatewayConnection, "reply", send)

    replies = served(service, calls_of([["first"], ["second"]]))

    assert [head.batch for head, _ in replies] == [1, 2]


@pytest.mark.usefixtures("always")
def test_a_lone_batch_stays_in_the_main_thread() -> None:
    service = fresh()

    served(service, calls_of([["a"], ["b"]]), most_ahead=1)

    used = service.tokenizer.threads | service.model.threads | service.names.threads
    assert used == {threading.current_thread().name}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("fields", [{"idempotent": False}, {"api": "plain"}])
def test_other_batches_take_their_turn_without_overlap(fields: dict[str, Any]) -> None:
    service = fresh()
    batches = [["a"], ["b", "reject"], ["c"], ["d"], ["finish"], ["a"]]
    calls = calls_of(batches)
    calls[2:4] = calls_of(batches, **fields)[2:4]

    assert shown(served(service, calls)) == shown(alone(fresh(), calls))


@dataclass(frozen=True, slots=True)
class Point:
    x: Any


class Slow(Service):
    """Preparing a row takes 75 s by the clock of the test."""

    def setup(self) -> None:
        self.now = 0.0

    def tokenize(self, rows: list[Any]) -> list[Any]:
        self.now += 75 * len(rows)
        return rows

    @api(input=Json(), prepare=tokenize)
    def predict(self, rows: list[Any]) -> list[Any]:
        if 7 in rows:
            raise ValueError("seven")
        return rows


@pytest.mark.parametrize(("is_ahead", "timeout_s"), [(False, 1600), (True, 950)])
def test_the_search_in_a_failed_batch_ends_in_time(
    is_ahead: bool, timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a batch begins with ``prepare``, or after it if that runs ahead. Half of the batch runs."""
    service = Slow()
    service.setup()
    monkeypatch.setattr(time, "perf_counter", lambda: service.now)
    with closing(Executor(service)) as executor:
        [call] = calls_of([range(8)], timeout_s=timeout_s)
        run = executor.in_stages(*call)
        assert run is not None
        if is_ahead:
            run.prepare()
        run.call()
        run.answer_parts()

    assert run.reply().statuses == [200] * 4 + [500] * 4


class Reusing(Service):
    """Each handler or ``finish`` returns the same array, with new values."""

    def setup(self) -> None:
        self.buffer = np.zeros(1)

    def same(self, rows: Any) -> Any:
        return rows

    def filled(self, rows: list[float]) -> Any:
        self.buffer[:] = rows
        return self.buffer

    @api(input=Json(), prepare=same)
    def array(self, rows: list[float]) -> Any:
        return self.filled(rows)

    @api(input=Json(), prepare=same)
    def column(self, rows: list[float]) -> Any:
        return {"x": self.filled(rows), "name": ["a"]}

    @api(input=Json(), prepare=same)
    def row(self, rows: list[float]) -> Any:
        return [("a", self.filled(rows))]

    @api(input=Json(), prepare=same)
    def point(self, rows: list[float]) -> Any:
        return [Point(self.filled(rows))]

    @api(input=Json(), prepare=same)
    def whole(self, rows: list[float]) -> Any:
        return [Response({"x": self.filled(rows)})]

    @api(input=Json(), finish=filled)
    def finished(self, rows: list[float]) -> Any:
        return rows


@pytest.mark.parametrize("to", ["array", "column", "row", "point", "whole"])
def test_a_handler_may_reuse_its_arrays_before_the_last_batch_is_encoded(to: str) -> None:
    service = Reusing()
    service.setup()
    with closing(Executor(service)) as executor:
        first, second = [executor.in_stages(*call) for call in calls_of([[1.5], [2.5]], to)]
        assert first is not None
        assert second is not None
        for run in (first, second):
            run.call()
        for run in (first, second):
            run.finish()
        answers = [run.bodies[0] for run in (first, second)]
    assert answers == [run_batch(service, to, body)[1][0] for body in (b"1.5", b"2.5")]
    assert answers[0] != answers[1]


def test_finish_may_reuse_its_arrays_in_another_thread() -> None:
    """As for a batch that needs several calls, while the results of the one before are encoded."""
    service = Reusing()
    service.setup()
    with closing(Executor(service)) as executor:
        first, _ = [executor.run_example(*call) for call in calls_of([[1.5], [2.5]], "finished")]
    assert first == [1.5]


@pytest.mark.usefixtures("always")
def test_an_exception_of_a_thread_ends_the_service() -> None:
    ours, theirs = socket.socketpair()
    with ours, closing(GatewayConnection(theirs)) as gateway, closing(Executor(fresh())) as executor:
        ours.sendall(encode_frame(Reply(1, True, 0, [], [], [])))
        with pytest.raises(FrameError, match="a worker accepts only batches, got Reply"):
            OverlappingStages(gateway, executor, []).serve()
