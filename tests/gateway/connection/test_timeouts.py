"""Timeouts of clients, on virtual time: heads, bodies, idle connections."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.client import Connection, Server, request
from tests.gateway.connection.test_protocol import Echo, hot, plain
from tests.gateway.stage import Stage
from uncork_gateway.connection.client_limits import ClientLimits

pytestmark = pytest.mark.virtual_time

LIMITS = ClientLimits(head_timeout_s=10, body_timeout_s=30)
KEEP_ALIVE_S = 75
HEAD = b"POST /hot HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n"


def serving(echo: Echo) -> Server:
    server = Server({b"/hot": echo}, app=plain, limits=LIMITS)
    server.config.timeout_keep_alive = KEEP_ALIVE_S
    return server


async def lasts_s(connection: Connection) -> float:
    """Return how long a connection stays open from now on."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(1000):
        if connection.closed:
            break
        await asyncio.sleep(0.5)
    return loop.time() - began


def statuses(connection: Connection) -> list[int]:
    return [reply.status for reply in connection.replies()]


async def test_a_connection_on_which_nothing_comes_is_closed() -> None:
    """There is no reply, because there is no request."""
    connection = Connection(serving(Echo()))
    assert 10 <= await lasts_s(connection) <= 15.5
    assert not connection.received


@pytest.mark.parametrize("path", [b"/hot", b"/plain"])
async def test_a_connection_that_nobody_uses_any_more_is_closed(path: bytes) -> None:
    """It closes after the keep-alive time since the last request."""
    connection = Connection(serving(Echo()))
    for _ in range(3):
        await asyncio.sleep(60 if connection.received else 0)
        connection.send(hot(b"1", path=path))
        await asyncio.sleep(0.1)
    assert KEEP_ALIVE_S <= await lasts_s(connection) <= KEEP_ALIVE_S + 6
    assert statuses(connection) == [200] * 3


async def test_a_connection_that_waits_for_an_answer_is_in_use() -> None:
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(hot(b"1"))
    await asyncio.sleep(1000)
    assert not connection.closed
    echo.answer()
    assert KEEP_ALIVE_S <= await lasts_s(connection) <= KEEP_ALIVE_S + 6


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("part", [b"P", b"POST /hot HTTP/1.1\r\nx: y", HEAD[:-2]])
async def test_a_head_must_be_whole_in_time(before: bool, part: bytes) -> None:
    """The client gets 408 even if it sends more, and time to read the reply."""
    connection = Connection(serving(Echo()))
    if before:
        connection.send(hot(b"1"))
        await asyncio.sleep(20)
    connection.send(part)
    lasting = asyncio.create_task(lasts_s(connection))
    while not connection.closed:
        await asyncio.sleep(1)
        connection.send(b"" if len(part) == 1 else b"y")

    assert 10 <= await lasting <= 16
    assert statuses(connection) == [200] * before + [408]
    assert not connection.is_closing()
    await asyncio.sleep(6)
    assert connection.is_closing()


@pytest.mark.parametrize("path", [b"/hot", b"/plain"])
@pytest.mark.parametrize(("piece_bytes", "every_s"), [(0, 1), (1, 1), (400, 1), (12_000, 29)])
async def test_a_body_must_go_on(path: bytes, piece_bytes: int, every_s: float) -> None:
    """A client that sends almost nothing would occupy a connection and memory."""
    connection = Connection(serving(Echo()))
    connection.send(HEAD.replace(b"/hot", path) + b"x" * 100_000)
    lasting = asyncio.create_task(lasts_s(connection))
    while not connection.closed:
        await asyncio.sleep(every_s)
        connection.send(b"x" * piece_bytes)

    assert 30 <= await lasting <= 95
    assert statuses(connection) == [408]


@pytest.mark.parametrize(("piece_bytes", "every_s"), [(600, 1), (20_000, 20)])
async def test_a_slow_line_is_no_attack(piece_bytes: int, every_s: float) -> None:
    """The body is complete after half an hour."""
    connection = Connection(serving(Echo()))
    connection.send(HEAD)
    for _ in range(1_000_000 // piece_bytes):
        await asyncio.sleep(every_s)
        connection.send(b"x" * piece_bytes)
    connection.send(b"x" * (1_000_000 % piece_bytes))

    assert statuses(connection) == [200]


async def test_chunk_lines_are_no_progress() -> None:
    """Chunk extensions can be endless, too."""
    connection = Connection(serving(Echo()))
    connection.send(b"POST /hot HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1;x=")
    while not connection.closed:
        await asyncio.sleep(1)
        connection.send(b"y" * 600)
    assert statuses(connection) == [408]


@pytest.mark.parametrize("part", [b"POST /hot", HEAD])
async def test_a_client_is_not_blamed_for_what_we_do_not_read(part: bytes) -> None:
    """The server does not read requests behind one that has no reply yet."""
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(hot(b"1") + hot(b"2") + part)
    assert not connection.reading
    await asyncio.sleep(1000)
    assert not connection.closed
    for _ in range(2):
        echo.answer()
    assert statuses(connection) == [200, 200]
    assert not connection.closed


async def test_a_slow_body_is_counted_as_408() -> None:
    stage = Stage(clock=asyncio.get_running_loop().time)
    connection = Connection(stage.server)
    connection.send(request(b"1" * 50)[:-10])
    await asyncio.sleep(100)

    [reply] = connection.replies()
    assert reply.status == 408
    assert b"the request body is too slow: 0 bytes in 30 s; send at least 500 bytes per second" in reply.body
    assert (stage.counted(408), stage.runner.jobs) == (1, [])
