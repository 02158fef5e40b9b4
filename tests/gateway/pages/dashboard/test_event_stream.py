"""The response with the events, on a connection with virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from tests.gateway.client import Connection, Server
from tests.gateway.running import turns
from tests.loops import other_tasks
from uncork_gateway.pages.dashboard.page import EventStream

pytestmark = pytest.mark.virtual_time

GET = b"GET /events HTTP/1.1\r\nHost: test\r\n\r\n"


class Frames:
    """A frame per second, at most ``most``, and whether somebody still wants them."""

    def __init__(self, most: int = 10**6) -> None:
        self._most = most
        self.wanted = True

    async def frames(self) -> AsyncGenerator[bytes, None]:
        try:
            for number in range(self._most):
                yield b"data: %d\n\n" % number
                await asyncio.sleep(1)
        finally:
            self.wanted = False


async def watch(frames: Frames) -> Connection:
    """A connection that has got the first frame."""

    async def events(request: Request) -> EventStream:
        return EventStream(frames.frames())

    connection = Connection(Server({}, app=Starlette(routes=[Route("/events", events)])))
    connection.send(GET)
    await turns(10)
    assert connection.received.endswith(b"data: 0\n\n\r\n")
    return connection


async def test_a_viewer_that_stops_reading_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Ten seconds after the first frame that it does not take; what it has not read is discarded."""
    frames = Frames()
    connection = await watch(frames)
    connection.protocol.pause_writing()
    await asyncio.sleep(10.5)
    assert (frames.wanted, connection.aborted) == (True, False)
    await asyncio.sleep(1)
    assert (frames.wanted, connection.aborted) == (False, True)
    connection.leave()
    await turns()
    assert other_tasks() == []
    assert not caplog.records


async def test_a_viewer_that_reads_slowly_keeps_its_stream() -> None:
    frames = Frames()
    connection = await watch(frames)
    for _ in range(3):
        connection.protocol.pause_writing()
        await asyncio.sleep(9)
        connection.protocol.resume_writing()
        await asyncio.sleep(1)
    assert (frames.wanted, connection.aborted) == (True, False)
    connection.leave()
    await turns()
    assert not frames.wanted
