"""Handlers that are generators, inside the worker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.workers.run_batch import Outlet, run_batch
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.outputs.responses import Rejected
from uncork_workers.definition.service import Service, api
from uncork_workers.process.context import add_batch, context
from uncork_workers.wire.messages import AnswerHead, Reply

log = logging.getLogger("a service")
LINES = AnswerHead(status=200, content_type="application/x-ndjson")


class Telling(Service):
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.calls: list[int] = []

    @api(input=Json(), policy="none")
    def plain(self, items: list[Any]) -> Iterator[Any]:
        try:
            for item in items[0]:
                yield made(item)
        finally:
            self.ended.append("plain")

    @api(input=Json(), policy="none")
    async def slow(self, items: list[Any]) -> AsyncIterator[Any]:
        """An async handler, whose pieces are all made by the same task."""
        task = asyncio.current_task()
        try:
            for item in items[0]:
                await asyncio.sleep(0)
                assert asyncio.current_task() is task
                yield made(item)
        finally:
            await asyncio.sleep(0)
            self.ended.append("slow")

    @api(input=NdArray(dtype="int64", shape=(1,)), policy="none", mb_max_batch_size=1)
    def rows(self, rows: Any) -> Iterator[Any]:
        self.calls.append(len(rows))
        yield rows.sum()


def made(item: Any) -> Any:
    match item:
        case "raise":
            raise RuntimeError("a secret of the handler")
        case "reject":
            return Rejected(422, "no")
        case "context":
            log.warning("here")
            return context().batch_id
    return item


def run(to: str, body: bytes, outlet: Outlet, service: Telling, *, rows: int = 1) -> tuple[Reply, bytes]:
    reply, [answer] = run_batch(
        service, to, body, rows=[rows], limit_rows=1, idempotent=False, id="x-7", outlet=outlet
    )
    return reply, answer


BOTH = pytest.mark.parametrize("to", ["plain", "slow"])


@BOTH
def test_pieces_leave_as_they_are_yielded(to: str) -> None:
    """The reply has an empty body and no batch times."""
    outlet, service = Outlet(), Telling()

    reply, answer = run(to, b'[1, {"a": 2}]', outlet, service)

    assert outlet.pieces == [(LINES, b"1\n"), (None, b'{"a":2}\n')]
    assert (reply.worked, reply.statuses, answer, reply.chunks) == (True, [200], b"", [])
    assert service.ended == [to]


@BOTH
def test_a_generator_is_closed_when_nobody_waits_for_more(to: str) -> None:
    outlet, service = Outlet(enough=2), Telling()

    reply, _ = run(to, b'["a", "b", "raise"]', outlet, service)

    assert [data for _, data in outlet.pieces] == [b"a", b"b"]
    assert (service.ended, reply.statuses) == ([to], [200])


@BOTH
def test_a_handler_that_raises_is_500_after_what_it_had_yielded(
    to: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not run again; the log has the traceback under the id in the response."""
    outlet, service = Outlet(), Telling()

    reply, answer = run(to, b'["a", "raise"]', outlet, service)

    assert [data for _, data in outlet.pieces] == [b"a"]
    assert (reply.worked, reply.statuses, service.ended) == (False, [500], [to])
    *_, error_id = answer.decode().split()
    assert f"[{error_id}]" in caplog.text
    assert "RuntimeError: a secret of the handler" in caplog.text


@BOTH
def test_a_request_may_be_refused_before_the_first_piece(to: str) -> None:
    outlet, service = Outlet(), Telling()

    reply, answer = run(to, b'["reject", "raise"]', outlet, service)

    assert (reply.statuses, answer, outlet.pieces) == ([422], b"no", [])
    assert service.ended == [to]


def test_invalid_input_is_400() -> None:
    outlet, service = Outlet(), Telling()

    reply, answer = run("rows", b'["x"]', outlet, service)

    assert (reply.statuses, service.calls, outlet.pieces) == ([400], [], [])
    assert b"int64" in answer


def test_the_handler_gets_all_rows_at_once() -> None:
    """Also above the limit, as several streams cannot be joined."""
    outlet, service = Outlet(), Telling()

    run("rows", b"[1],[2],[3]", outlet, service, rows=3)

    assert (service.calls, outlet.pieces) == ([3], [(LINES, b"6\n")])


@BOTH
def test_a_generator_knows_its_batch(to: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(add_batch)
    outlet = Outlet()

    run(to, b'["context"]', outlet, Telling())

    assert [data for _, data in outlet.pieces] == [b"x-7"]
    assert [getattr(record, "batch", None) for record in caplog.records] == ["x-7"]
