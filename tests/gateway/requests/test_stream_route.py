"""Streamed replies, as their clients see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from tests.gateway.client import Connection, request
from tests.gateway.requests.stream_stage import Streaming, StreamStage
from tests.gateway.running import turns
from tests.gateway.stage import LIMIT_BYTES, detail
from uncork_dispatcher import WorkerLost
from uncork_workers.wire.messages import AnswerHead

pytestmark = pytest.mark.virtual_time


def body_of(connection: Connection) -> bytes:
    """Return the bytes after the first head, with chunk sizes."""
    return connection.received.partition(b"\r\n\r\n")[2]


async def test_each_piece_is_a_chunk_at_once() -> None:
    """The head comes before the first piece, the last chunk when the handler returns."""
    stage = StreamStage()
    connection, worker = await stage.ask()
    assert connection.received == b""
    worker.send(b"ab")
    assert connection.received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body_of(connection) == b"2\r\nab\r\n"
    worker.send(b"", b"0123456789abcdef")
    assert body_of(connection) == b"2\r\nab\r\n10\r\n0123456789abcdef\r\n"
    assert stage.counted(200) is None
    worker.end()
    await turns()
    assert body_of(connection).endswith(b"\r\n0\r\n\r\n")
    assert (connection.closed, stage.counted(200)) == (False, 1)

    connection.send(request(b"2"))
    await turns()
    assert stage.running[-1].body == b"2"
    stage.running[-1].send(b"again")
    stage.running[-1].end()
    await turns()

    first, second = connection.replies()
    assert (first.status, first.body, second.body) == (200, b"ab0123456789abcdef", b"again")
    assert first.headers["transfer-encoding"] == "chunked"
    assert first.headers["content-type"] == "text/plain"
    assert (first.headers["x-batch-id"], first.headers["x-batch-size"]) == ("gateway-1", "1")
    assert first.headers["server-timing"].startswith("queue;dur=")


async def test_the_handler_says_status_and_headers() -> None:
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.send(b"a", head=AnswerHead(203, "text/event-stream", [("cache-control", "no-cache")]))
    worker.end()
    await turns()

    [reply] = connection.replies()
    assert (reply.status, reply.headers["cache-control"]) == (203, "no-cache")
    assert reply.headers["content-type"] == "text/event-stream"
    assert stage.counted(203) == 1


async def test_an_answer_of_no_pieces_is_empty() -> None:
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.end()
    await turns()

    [reply] = connection.replies()
    assert (reply.status, reply.body, reply.headers["x-batch-id"]) == (200, b"", "gateway-1")
    assert "content-type" not in reply.headers


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("begun", [False, True])
async def test_a_stream_ends_when_its_clients_time_has_passed(
    version: bytes, begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An error before the first piece; then the client sees by the missing end that pieces are missing."""
    stage = StreamStage()
    connection, worker = await stage.ask(head=[(b"x-request-timeout-ms", b"100")], version=version)
    if begun:
        worker.send(b"ab")
    await asyncio.sleep(0.2)
    assert worker.cancelled == 1
    worker.send(b"late")
    worker.end()
    await turns()

    if begun:
        assert connection.closed
        assert connection.received.endswith(b"ab\r\n" if version == b"1.1" else b"ab")
    else:
        [reply] = connection.replies()
        assert (
            detail(reply, 504) == "the timeout in X-Request-Timeout-Ms expired while the request was running"
        )
    assert (stage.counted(504), stage.metrics.api("echo").errors) == (1, {})
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    """The end of the connection ends the reply."""
    stage = StreamStage()
    connection, worker = await stage.ask(version=b"1.0")
    worker.send(b"ab", b"c")
    assert not connection.closed
    worker.end()
    await turns()

    assert body_of(connection) == b"abc"
    assert b"transfer-encoding" not in connection.received
    assert b"connection: close\r\n" in connection.received
    assert (connection.closed, connection.aborted, stage.counted(200)) == (True, False, 1)


async def test_a_client_that_wants_the_connection_closed_gets_its_chunks_first() -> None:
    """HTTP/1.1 with ``Connection: close``."""
    stage = StreamStage()
    connection, worker = await stage.ask(head=[(b"connection", b"close")])
    worker.send(b"ab")
    worker.end()
    await turns()

    assert body_of(connection) == b"2\r\nab\r\n0\r\n\r\n"
    assert connection.closed


@pytest.mark.parametrize(("status", "body"), [(400, b"no"), (500, b"failed; error id 1"), (422, b"no")])
async def test_before_the_first_piece_a_failure_is_an_answer(status: int, body: bytes) -> None:
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.end(status, body)
    await turns()

    [reply] = connection.replies()
    assert reply.status == status
    assert body in reply.body
    assert not connection.closed


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (AnswerHead(200, "text/plain", [("x", "a\r\nb")]), b"a header with a line break or NUL"),
        (AnswerHead(200, "text/\u20ac"), b"internal error; error id "),
    ],
)
async def test_a_head_that_cannot_be_sent_is_500(head: AnswerHead, told: bytes) -> None:
    """The worker's run is cancelled, later pieces are dropped, and the connection serves the next request."""
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.send(b"ab", b"c", head=head)
    await turns()
    worker.end()
    await turns()

    [reply] = connection.replies()
    assert reply.status == 500
    assert told in reply.body
    assert (worker.cancelled, stage.counted(500)) == (1, 1)

    connection.send(request(b"2"))
    await turns()
    assert stage.running[-1].body == b"2"


def handler_fails(worker: Streaming) -> None:
    worker.end(500, b"the handler of API 'tell' failed; error id 77")


def worker_dies(worker: Streaming) -> None:
    worker.fail(WorkerLost("worker 0 died"))


def time_passes(worker: Streaming) -> None:
    """The worker is silent for longer than the timeout of the API."""


@pytest.mark.parametrize(
    ("happens", "status", "reason"),
    [
        (handler_fails, 500, "the handler of API 'tell' failed; error id 77"),
        (worker_dies, 502, "the worker died while running this request"),
        (time_passes, 504, "the batch exceeded the timeout of this API"),
    ],
)
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_after_the_first_piece_a_failure_ends_the_connection(
    happens: Callable[[Streaming], None],
    status: int,
    reason: str,
    version: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last chunk is missing; HTTP/1.0 has none, so there it is a reset. The log says why."""
    stage = StreamStage()
    connection, worker = await stage.ask(version=version)
    worker.send(b"ab")
    happens(worker)
    await connection.ended.wait()
    await turns()

    assert body_of(connection) == (b"2\r\nab\r\n" if version == b"1.1" else b"ab")
    assert (connection.closed, connection.aborted) == (True, version == b"1.0")
    assert stage.counted(status) == 1
    assert stage.metrics.api("echo").errors == {status: 1}
    [record] = [one for one in caplog.records if one.name == "uncork.gateway"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f"the stream of batch gateway-1 was cut short: {reason}"


@pytest.mark.parametrize("pieces", [[], [b"a"]])
async def test_a_client_that_leaves_has_its_stream_cancelled(pieces: list[bytes]) -> None:
    """Also before the first piece; later pieces are dropped."""
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.send(*pieces)
    before = connection.received
    connection.leave()
    worker.send(b"more")
    await turns()
    worker.end()
    await turns()

    assert (worker.cancelled, connection.received) == (1, before)
    assert (stage.counted(499), stage.counted(200)) == (1, None)


async def test_a_client_that_leaves_the_queue_cancels_nothing() -> None:
    stage = StreamStage()
    _, worker = await stage.ask()
    waiting = Connection(stage.server)
    waiting.send(request(b"2", headers=()))
    await turns()
    waiting.leave()
    worker.end()
    await turns()

    assert (worker.cancelled, len(stage.running)) == (0, 1)


async def test_pieces_for_a_connection_that_is_closing_go_nowhere() -> None:
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.send(b"a")
    connection.close()
    worker.send(b"b")
    worker.end()
    await turns()
    connection.leave()

    assert body_of(connection) == b"1\r\na\r\n"
    assert (stage.counted(499), stage.counted(200)) == (1, None)


async def test_a_pipelined_request_waits_for_the_end() -> None:
    stage = StreamStage(workers=2)
    connection, worker = await stage.ask()
    connection.send(request(b"2"))
    await turns()
    worker.send(b"a")
    assert len(stage.running) == 1
    worker.end()
    await turns()
    stage.running[1].send(b"b")
    stage.running[1].end()
    await turns()

    assert [reply.body for reply in connection.replies()] == [b"a", b"b"]


async def test_a_client_that_does_not_read_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    stage = StreamStage()
    connection, worker = await stage.ask()
    worker.send(b"a" * 3 * LIMIT_BYTES)
    connection.unread = LIMIT_BYTES
    worker.send(b"b")
    assert not connection.closed
    connection.unread = LIMIT_BYTES + 1
    worker.send(b"c", b"d")
    await turns()
    worker.end()
    await turns()

    assert body_of(connection).endswith(b"1\r\nb\r\n")
    assert (connection.aborted, worker.cancelled, stage.counted(499)) == (True, 1, 1)
    assert stage.counted(200) is None
    assert f"a client of batch gateway-1: it has not read {LIMIT_BYTES + 1} bytes" in caplog.text
