"""The events of the dashboard, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection

import msgspec
import pytest

from tests.gateway.running import turns
from tests.loops import other_tasks
from uncork_gateway.pages.dashboard.feed import Event, Feed
from uncork_gateway.pages.dashboard.history import History, Point
from uncork_gateway.pages.status.document import Status
from uncork_gateway.telemetry.finished_batches import FinishedBatch

pytestmark = pytest.mark.virtual_time


class Gateway:
    """A source with the test's batches; it counts its calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.broken = False
        """Makes status() fail."""
        self._batches: list[FinishedBatch] = []

    def run(self, count: int, *, api: str = "predict") -> None:
        first = len(self._batches) + 1
        self._batches += [batch(number, api) for number in range(first, first + count)]

    def status(self) -> Status:
        self.asked += 1
        if self.broken:
            raise ZeroDivisionError
        return Status(
            version="1",
            server="digits",
            time=0.0,
            uptime_s=0.0,
            window_s=30.0,
            state="ready",
            sentence="",
            restarts=0,
            scaling=None,
            settings_change=None,
            services=[],
            utilization=None,
            workers=[],
            apis=[],
        )

    def batches_after(self, number: int) -> list[FinishedBatch]:
        return [one for one in self._batches if one.number > number]


def batch(number: int, api: str) -> FinishedBatch:
    return FinishedBatch(
        number=number,
        ended=0.0,
        api=api,
        rows=1,
        cost=1.0,
        requests=1,
        reason="idle",
        waited_ms=0.0,
        predicted_ms=1.0,
        actual_ms=1.0,
        worked=True,
        worker=0,
    )


def commands(names: Collection[str]) -> dict[str, str]:
    return {name: f"curl http://GATEWAY/{name}" for name in names}


def feed_of(gateway: Gateway, history: History | None = None) -> Feed:
    return Feed(gateway.status, gateway.batches_after, history or History(), commands)


def event(frame: bytes) -> Event:
    return msgspec.json.decode(frame[6:], type=Event)


def point(queued_rows: float) -> Point:
    return Point(1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, queued_rows, 0.1)


def numbers(frame: bytes) -> list[int]:
    assert frame.startswith(b"data: {")
    assert frame.endswith(b"}\n\n")
    assert frame.count(b"\n") == 2
    return [one.number for one in event(frame).batches]


def has_room(feed: Feed) -> bool:
    return feed.why_no_more is None


async def leave(*viewers: AsyncGenerator[bytes, None]) -> None:
    for viewer in viewers:
        await viewer.aclose()


async def test_a_viewer_gets_the_past_at_once_and_then_what_is_new_every_second() -> None:
    gateway = Gateway()
    gateway.run(3)
    viewer = feed_of(gateway).frames()
    loop = asyncio.get_running_loop()

    began = loop.time()
    assert numbers(await anext(viewer)) == [1, 2, 3]
    assert loop.time() == began
    gateway.run(2)
    assert numbers(await anext(viewer)) == [4, 5]
    assert loop.time() == began + 1
    assert numbers(await anext(viewer)) == []
    assert loop.time() == began + 2
    await leave(viewer)


async def test_nothing_is_made_when_nobody_looks() -> None:
    gateway = Gateway()
    feed = feed_of(gateway)
    await asyncio.sleep(10)
    assert gateway.asked == 0

    one, other = feed.frames(), feed.frames()
    for viewer in (one, other):
        await anext(viewer)
    await anext(one)
    assert gateway.asked == 3
    await leave(one, other)
    await asyncio.sleep(10)
    assert gateway.asked == 3
    assert other_tasks() == []


async def test_viewers_share_their_frames() -> None:
    """Events are encoded once for all viewers; a later viewer gets its own first event."""
    gateway = Gateway()
    feed = feed_of(gateway)
    one, other = feed.frames(), feed.frames()
    await anext(one)
    gateway.run(2)
    assert numbers(await anext(other)) == [1, 2]
    shared = await anext(one)
    assert numbers(shared) == [1, 2]
    assert await anext(other) is shared
    await leave(one)
    gateway.run(1)
    assert numbers(await anext(other)) == [3]
    await leave(other)


async def test_one_who_does_not_read_is_left_behind() -> None:
    """The stream of a viewer that does not read ends; other streams continue."""
    feed = feed_of(Gateway())
    reader, sleeper = feed.frames(), feed.frames()
    await anext(sleeper)
    for _ in range(50):
        await anext(reader)
    assert len([frame async for frame in sleeper]) == 8
    await anext(reader)
    await leave(reader)


async def test_one_who_does_not_read_loses_its_place_at_once() -> None:
    """Although its stream has not ended: it may be blocked in the middle of a frame."""
    feed = feed_of(Gateway())
    reader, *sleepers = [feed.frames() for _ in range(16)]
    for viewer in (*sleepers, reader):
        await anext(viewer)
    for _ in range(8):
        await anext(reader)
    assert not has_room(feed)
    await anext(reader)
    assert has_room(feed)
    await leave(reader)
    await turns()
    assert other_tasks() == []
    await leave(*sleepers)


async def test_the_first_event_has_the_history_and_later_ones_its_latest_point() -> None:
    gateway, history = Gateway(), History()
    viewer = feed_of(gateway, history).frames()
    loop = asyncio.get_running_loop()
    for queued in (1.0, 2.0):
        history.add(loop.time(), {"predict": point(queued)})
        await asyncio.sleep(2)
    first = event(await anext(viewer))
    assert first.is_first
    assert first.history["predict"]["age_s"] == [4.0, 2.0]
    assert first.history["predict"]["queued_rows"] == [1.0, 2.0]

    later = event(await anext(viewer))
    assert not later.is_first
    assert later.history["predict"]["age_s"] == [3.0]
    assert later.history["predict"]["queued_rows"] == [2.0]
    await leave(viewer)


async def test_many_batches_are_thinned_for_each_api() -> None:
    """Batches are thinned evenly and include the latest of each API; rare ones are all kept."""
    gateway = Gateway()
    feed = feed_of(gateway)
    viewer = feed.frames()
    await anext(viewer)
    gateway.run(100)
    gateway.run(3, api="rare")
    gateway.run(101)
    found = numbers(await anext(viewer))
    assert [number for number in found if 100 < number <= 103] == [101, 102, 103]
    common = [number for number in found if not 100 < number <= 103]
    assert (len(common), common[-1]) == (10, 204)
    await leave(viewer)


async def test_the_past_is_thinned_too() -> None:
    gateway = Gateway()
    gateway.run(2000)
    viewer = feed_of(gateway).frames()
    found = numbers(await anext(viewer))
    assert (len(found), found[-1]) == (500, 2000)
    await leave(viewer)


async def test_viewers_are_bounded() -> None:
    """A viewer over the limit gets nothing until another leaves."""
    feed = feed_of(Gateway())
    viewers = [feed.frames() for _ in range(16)]
    for viewer in viewers:
        assert has_room(feed)
        await anext(viewer)
    assert not has_room(feed)
    assert feed.why_no_more == "16 dashboards are open already, the most allowed; close one"
    assert [frame async for frame in feed.frames()] == []
    await leave(viewers.pop())
    assert has_room(feed)
    await leave(*viewers)


async def test_a_closed_feed_tells_the_last_and_ends() -> None:
    """Current viewers get a last event; new ones are not admitted."""
    gateway = Gateway()
    feed = feed_of(gateway)
    viewer = feed.frames()
    await anext(viewer)
    gateway.run(1)
    feed.close()
    assert [numbers(frame) async for frame in viewer] == [[1]]
    assert feed.why_no_more == "the server is shutting down"
    await turns()
    assert other_tasks() == []


async def test_an_event_that_cannot_be_made_is_missed(caplog: pytest.LogCaptureFixture) -> None:
    """The next event has the batches of both."""
    gateway = Gateway()
    feed = feed_of(gateway)
    viewer = feed.frames()
    await anext(viewer)
    gateway.run(1)
    gateway.broken = True
    coming = asyncio.ensure_future(anext(viewer))
    await asyncio.sleep(1.5)
    gateway.broken = False
    gateway.run(1)
    assert numbers(await coming) == [1, 2]

    later = feed.frames()
    assert numbers(await anext(later)) == [1, 2]
    assert numbers(await anext(later)) == []
    await leave(viewer, later)
    assert len(caplog.records) == 1
    assert "ZeroDivisionError" in caplog.text


async def test_a_feed_whose_last_event_cannot_be_made_ends_all_the_same() -> None:
    gateway = Gateway()
    feed = feed_of(gateway)
    viewer = feed.frames()
    await anext(viewer)
    gateway.broken = True
    feed.close()
    assert [frame async for frame in viewer] == []


def test_closing_costs_nothing_when_nobody_looks() -> None:
    gateway = Gateway()
    feed_of(gateway).close()
    assert gateway.asked == 0
