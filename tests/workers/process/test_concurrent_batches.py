"""Batches of APIs with ``concurrency`` run at once in a worker, beside one batch of the other APIs."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from tests.loops import HANG_S
from tests.workers.fake_gateway import Connection
from tests.workers.run_batch import batch_of
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.concurrent_batches import ConcurrentBatches
from uncork_workers.process.context import context
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.frames import FrameError, split_payload
from uncork_workers.wire.messages import Cancel, Piece, Pong, Reply


class Upstream(Service):
    """Rows say what happens to their batch; those that ``wait`` end when another says ``go``."""

    def setup(self) -> None:
        self.go = asyncio.Event()
        self.started, self.ended = threading.Semaphore(0), threading.Event()
        self.threads = set[str]()
        self.buffer = np.zeros(1)
        self.error = ValueError("an exception that several handlers raise")

    @api(input=Json(), concurrency=4)
    async def fetch(self, rows: list[Any]) -> list[Any]:
        self.threads.add(threading.current_thread().name)
        for row in rows:
            if row == "wait":
                self.started.release()
                try:
                    await self.go.wait()
                finally:
                    self.ended.set()
            elif row == "go":
                self.go.set()
            elif row == "fail":
                raise ValueError("a row that fails")
            elif row == "fail as others":
                raise self.error
            elif row == "survive":
                try:
                    raise self.error
                except ValueError:
                    self.started.release()
                    await self.go.wait()
            elif row == "fork" and os.fork() == 0:
                return rows
        return [[context().batch_id, row] for row in rows]

    @api(input=Json(), concurrency=2)
    async def reuse(self, rows: list[float]) -> Any:
        if rows == [1.5]:
            self.started.release()
            await self.go.wait()
        self.buffer[:] = rows
        self.go.set()
        return self.buffer

    @api(input=Json(), policy="none", concurrency=2)
    async def stream(self, rows: list[Any]) -> AsyncIterator[str]:
        yield "first"
        await self.go.wait()
        yield rows[0]

    @api(input=Json())
    async def other(self, rows: list[Any]) -> list[Any]:
        self.go.set()
        return rows

    @api(input=Json())
    def plain(self, rows: list[Any]) -> list[Any]:
        return [threading.current_thread() is threading.main_thread() for _ in rows]


class Gateway(Connection):
    """The other end of the connection."""

    def run(self, number: int, *rows: Any, api: str = "fetch", timeout_s: float = HANG_S) -> None:
        bodies = [json.dumps(row).encode() for row in rows]
        batch = batch_of(api, *bodies, number=number, id=f"b{number}", timeout_s=timeout_s)
        self.send((batch, bodies))

    def reply(self) -> tuple[int, list[int], list[Any]]:
        """Return number, statuses and results of the next reply."""
        message, payload = self.next()
        assert isinstance(message, Reply)
        assert message.timed_out == (504 in message.statuses)
        bodies = split_payload(payload, message.lengths)
        results = [
            json.loads(body) if status == 200 else body.decode()
            for status, body in zip(message.statuses, bodies, strict=True)
        ]
        return message.batch, message.statuses, results

    def wait_for_reply(self) -> None:
        """Wait until the first byte of a reply has arrived, and leave it there."""
        assert self._socket.recv(1, socket.MSG_PEEK)


@contextmanager
def serving(service: Service) -> Iterator[Gateway]:
    """Serve in this thread's place in another one, until the block ends."""
    ours, theirs = socket.socketpair()
    due: list[float] = []
    errors: list[BaseException] = []

    def serve() -> None:
        try:
            with (
                closing(GatewayConnection(theirs)) as gateway,
                closing(Executor(service, gateway)) as executor,
            ):
                ConcurrentBatches(gateway, executor, due).serve()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with closing(ours):
            yield Gateway(ours)
    finally:
        thread.join(HANG_S)
    assert not thread.is_alive()
    assert due == []
    if errors:
        raise errors[0]


def upstream() -> Upstream:
    service = Upstream()
    service.setup()
    return service


def test_a_batch_that_waits_holds_up_no_other() -> None:
    """Replies come as batches end; all handlers run in one thread, and know their own batch."""
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, "wait")
        gateway.run(2, "a", "b")
        assert gateway.reply() == (2, [200, 200], [["b2", "a"], ["b2", "b"]])
        gateway.run(3, "fail", "c")
        number, statuses, results = gateway.reply()
        assert (number, statuses, results[1]) == (3, [500, 200], ["b3", "c"])
        gateway.run(4, "go")
        replies = [gateway.reply() for _ in range(2)]
        assert sorted(replies) == [(1, [200], [["b1", "wait"]]), (4, [200], [["b4", "go"]])]
    assert service.threads == {"uncork handlers"}


def test_a_handler_may_reuse_an_array_that_another_has_returned() -> None:
    """The next one runs before the thread of a batch has its results."""
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, 1.5, api="reuse")
        assert service.started.acquire(timeout=HANG_S)
        gateway.run(2, 2.5, api="reuse")
        assert sorted(gateway.reply() for _ in range(2)) == [(1, [200], [1.5]), (2, [200], [2.5])]


@pytest.mark.parametrize("api", ["plain", "other"])
def test_other_apis_run_beside_them(api: str) -> None:
    """In the main thread, one at a time; the handlers of async ones share the loop."""
    with serving(upstream()) as gateway:
        gateway.run(1, "wait")
        gateway.run(2, "x", api=api)
        if api == "plain":  # the other one ends the wait
            assert gateway.reply()[:2] == (2, [200])
            gateway.run(2, "go")
        assert sorted(gateway.reply()[:2] for _ in range(2)) == [(1, [200]), (2, [200])]


def test_a_handler_may_go_on_after_an_exception_that_fails_another() -> None:
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, "survive")
        assert service.started.acquire(timeout=HANG_S)
        gateway.run(2, "fail as others")
        assert gateway.reply()[:2] == (2, [500])
        gateway.run(3, "go")
        assert sorted(gateway.reply()[:2] for _ in range(2)) == [(1, [200]), (3, [200])]


def test_a_batch_past_its_timeout_is_cancelled_alone() -> None:
    """At once; its requests get 504, and nothing is learned from it."""
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, "wait")
        gateway.run(2, "wait", "also", timeout_s=0.01)
        number, statuses, results = gateway.reply()
        assert (number, statuses) == (2, [504, 504])
        assert set(results) == {"the batch ran past the timeout of API 'fetch', 0.01 s"}
        gateway.run(3, "go")
        assert sorted(gateway.reply()[:2] for _ in range(2)) == [(1, [200]), (3, [200])]


def test_a_batch_that_everybody_has_left_is_cancelled_alone() -> None:
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, "wait")
        gateway.run(2, "wait")
        for _ in range(2):
            assert service.started.acquire(timeout=HANG_S)
        gateway.send((Cancel(2, (0,)), ()))
        assert gateway.reply()[:2] == (2, [499])
        assert service.ended.is_set()
        gateway.send((Cancel(2, (0,)), ()))  # it has ended
        gateway.run(3, "go")
        assert sorted(gateway.reply()[:2] for _ in range(2)) == [(1, [200]), (3, [200])]


def test_a_thread_runs_one_batch_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    """Unless the next one arrives before the thread that has replied can wait for it."""
    with serving(upstream()) as gateway:
        gateway.run(1, "wait")
        for number in range(2, 40):
            gateway.run(number, "fail")
            assert gateway.reply()[:2] == (number, [500])
        gateway.run(40, "go")
        assert sorted(gateway.reply()[0] for _ in range(2)) == [1, 40]
    assert len({record.threadName for record in caplog.records}) < 10


def test_a_batch_runs_while_a_large_reply_is_sent() -> None:
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, large := "x" * 10_000_000)
        gateway.wait_for_reply()
        gateway.run(2, "wait")
        assert service.started.acquire(timeout=HANG_S)
        assert gateway.reply() == (1, [200], [["b1", large]])
        gateway.run(3, "go")
        assert sorted(gateway.reply()[:2] for _ in range(2)) == [(2, [200]), (3, [200])]


def test_batches_wait_if_the_system_allows_no_more_threads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a limit of memory, of which each thread takes some megabytes for its stack."""
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name == "uncork batch 2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    service = upstream()
    with serving(service) as gateway:
        for number in (1, 2):
            gateway.run(number, "wait")
            assert service.started.acquire(timeout=HANG_S)
        for number in (3, 4):
            gateway.run(number, "waits for a thread")
        gateway.run(5, "x", api="other")
        assert sorted(gateway.reply()[:2] for _ in range(5)) == [(number, [200]) for number in range(1, 6)]
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("the worker runs at most 2 batches at once: can't start new thread; ")


def test_streams_run_at_once() -> None:
    with serving(upstream()) as gateway:
        gateway.run(1, "a", api="stream")
        gateway.run(2, "b", api="stream")
        firsts = [gateway.next() for _ in range(2)]
        assert sorted(one.batch for one, _ in firsts if isinstance(one, Piece)) == [1, 2]
        gateway.run(3, "go")
        rest = [gateway.next() for _ in range(5)]
        assert sorted(type(one).__name__ for one, _ in rest) == ["Piece", "Piece", "Reply", "Reply", "Reply"]


def test_batches_end_after_the_gateway_has_closed_its_end() -> None:
    """It may still read their replies."""
    service = upstream()
    with serving(service) as gateway:
        gateway.run(1, "wait")
        assert service.started.acquire(timeout=HANG_S)
        gateway.run(2, "go")
        gateway.finish()
        assert sorted(gateway.reply()[:2] for _ in range(2)) == [(1, [200]), (2, [200])]


def test_a_message_that_no_worker_accepts_ends_the_connection() -> None:
    def talk() -> None:
        with serving(upstream()) as gateway:
            gateway.send((Pong(), ()))
            assert gateway.rest() == []

    with pytest.raises(FrameError, match="a worker accepts only batches"):
        talk()


def test_replies_to_a_gateway_that_is_gone_end_the_connection() -> None:
    service = upstream()

    def talk() -> None:
        with serving(service) as gateway:
            gateway.run(1, "wait")
            assert service.started.acquire(timeout=HANG_S)
            gateway.run(2, "go")
            gateway.close()

    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        talk()


def test_a_fork_that_a_handler_makes_is_no_second_worker() -> None:
    """It ends where its handler returns."""
    with serving(upstream()) as gateway:
        gateway.run(1, "fork")
        assert gateway.reply() == (1, [200], [["b1", "fork"]])
        gateway.run(2, "x")
        assert gateway.reply()[:2] == (2, [200])
        assert os.waitpid(-1, 0)[1] == 0
