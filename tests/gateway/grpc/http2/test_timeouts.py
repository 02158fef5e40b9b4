"""How long clients may take, on virtual time: preface, frames, bodies, reading, age."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hpack import Encoder

from tests.gateway.grpc.http2.peer import LIMITS, START, EchoCall, Peer, Server, Wire, headers, message
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import ErrorCode
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.statuses import Code

pytestmark = pytest.mark.virtual_time

CLIENTS = ClientLimits(head_timeout_s=10, body_timeout_s=30)
BLOCK = Encoder().encode(headers())


def serving(**limits: float) -> Server:
    return Server(clients=CLIENTS, limits=replace(LIMITS, **limits))  # type: ignore[arg-type]


async def lasts_s(wire: Wire) -> float:
    """Return how long a connection stays open from now on."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(10_000):
        if wire.ended:
            break
        await asyncio.sleep(0.5)
    return loop.time() - began


@pytest.mark.parametrize("sent", [b"", b"P", frames.PREFACE, START[:-1]])
async def test_a_connection_must_begin_in_time(sent: bytes) -> None:
    wire = Wire(serving())
    if sent:
        wire.send(sent)
    assert 10 <= await lasts_s(wire) <= 15.5


async def test_an_idle_connection_stays() -> None:
    peer = Peer(serving())
    await asyncio.sleep(10_000)
    assert peer.ask().status == 0
    await asyncio.sleep(10_000)
    assert not peer.wire.ended
    assert peer.ask().status == 0


@pytest.mark.parametrize(
    ("begin", "piece", "seconds", "says"),
    [
        (
            frames.frame(frames.HEADERS, 0, 1, BLOCK[:3]),
            frames.frame(frames.CONTINUATION, 0, 1),
            10,
            b"a header block took longer than 10 s",
        ),
        (frames.headers(1, BLOCK, ends=False) + b"\0\x40", b"\0", 30, b"a frame took longer than 30 s"),
    ],
)
async def test_what_has_begun_must_be_complete_in_time(
    begin: bytes, piece: bytes, seconds: int, says: bytes
) -> None:
    wire = Wire(serving())
    wire.send(START + begin)
    lasting = asyncio.create_task(lasts_s(wire))
    while not wire.ended:
        await asyncio.sleep(2)
        wire.send(piece)
    assert seconds <= await lasting <= seconds + 6
    assert says in wire.received


@pytest.mark.parametrize(("piece_bytes", "every_s"), [(0, 1), (1, 1), (400, 1), (12_000, 29)])
async def test_a_message_must_go_on(piece_bytes: int, every_s: float) -> None:
    """Other calls on the connection go on."""
    peer = Peer(serving())
    number = peer.call(None)
    peer.upload(number, message(bytes(500_000))[:10_000])
    waited_s = 0.0
    while not peer.answer(number).is_ended:
        peer.upload(number, bytes(piece_bytes))
        await asyncio.sleep(every_s)
        waited_s += every_s
        peer.sync()

    assert 30 <= waited_s <= 95
    assert peer.answer(number).status == Code.DEADLINE_EXCEEDED
    assert "the request body is too slow" in peer.answer(number).text
    assert peer.ask().status == 0
    assert peer.server.pool.used_bytes == 0


@pytest.mark.parametrize(("piece_bytes", "every_s"), [(600, 1), (16_000, 20)])
async def test_a_slow_line_is_no_attack(piece_bytes: int, every_s: float) -> None:
    peer = Peer(serving())
    number = peer.call(None)
    data = message(bytes(400_000))
    while data:
        peer.upload(number, data[:piece_bytes], ends=len(data) <= piece_bytes)
        data = data[piece_bytes:]
        await asyncio.sleep(every_s)
    assert peer.answer(number).messages == [bytes(400_000)]


async def test_messages_that_come_together_share_the_least_speed() -> None:
    peer = Peer(serving())
    numbers = [peer.call(None) for _ in range(10)]
    for number in numbers:
        peer.upload(number, message(bytes(100_000))[:1000])
    for _ in range(200):
        await asyncio.sleep(1)
        for number in numbers:
            peer.upload(number, bytes(60))
    assert not any(peer.answer(number).is_ended for number in numbers)


async def test_a_stream_may_rest_between_messages() -> None:
    peer = Peer(serving())
    number = peer.call(None, path=b"/t.T/Stream")
    for _ in range(3):
        peer.upload(number, message(bytes(30_000)))
        await asyncio.sleep(1000)
    assert peer.answer(number).messages == [bytes(30_000)] * 3


async def test_a_client_that_gets_no_window_is_not_blamed() -> None:
    server = serving()
    other, peer = Peer(server), Peer(server)
    numbers = [each.call(None) for each in (other, peer)]
    server.pool.used_bytes += server.pool.max_bytes
    # The first one gets windows anyway, and is slow.
    assert not other.upload(numbers[0], message(bytes(900_000))[:100_000])
    rest = peer.upload(numbers[1], message(bytes(200_000)), ends=True)
    assert len(rest) > 130_000
    for _ in range(200):
        await asyncio.sleep(1)
        other.upload(numbers[0], bytes(600))
    peer.sync()
    assert len(peer.upload(numbers[1], rest, ends=True)) == len(rest)
    assert not peer.answer(numbers[1]).is_ended
    server.pool.used_bytes -= server.pool.max_bytes
    await asyncio.sleep(1)
    peer.sync()
    assert not peer.upload(numbers[1], rest, ends=True)
    assert peer.answer(numbers[1]).messages == [bytes(200_000)]


@pytest.mark.parametrize("sent", [b"", message(b""), message(b"hello"), message(bytes(100_000))])
async def test_a_call_that_takes_one_message_must_end(sent: bytes) -> None:
    """Its message waits for the end, so the client must not keep it open; a stream may stay open."""
    server = serving()
    peer = Peer(server)
    number = peer.call(None, path=b"/t.T/One")
    stream = peer.call(None, path=b"/t.T/Stream")
    assert not peer.upload(number, sent)
    await asyncio.sleep(25)
    peer.sync()
    assert not peer.answer(number).is_ended
    await asyncio.sleep(80)
    peer.sync()
    assert peer.answer(number).status == Code.DEADLINE_EXCEEDED
    assert "too slow" in peer.answer(number).text
    assert server.pool.used_bytes == 0
    assert not peer.answer(stream).is_ended


async def test_the_first_that_waits_is_the_next_to_go_on() -> None:
    """The pool is full of messages that wait for each other, and all become complete."""
    server = serving()
    server.pool.used_bytes += server.pool.max_bytes
    peers = [Peer(server) for _ in range(5)]
    numbers = [peer.call(None) for peer in peers]
    rests = [message(bytes(200_000))] * 5
    for _ in range(20):
        for place, peer in enumerate(peers):
            peer.sync()
            rests[place] = peer.upload(numbers[place], rests[place], ends=True)
        await asyncio.sleep(0.1)
    assert not any(rests)
    assert all(peer.answer(number).status == 0 for peer, number in zip(peers, numbers, strict=True))


async def test_far_too_many_large_messages_are_refused() -> None:
    server = Server(pool_bytes=100_000)
    peer = Peer(server)
    numbers = [peer.call(None) for _ in range(3)]
    for number in numbers:
        peer.upload(number, message(bytes(900_000))[:70_000])
    refused = [peer.answer(number) for number in numbers if peer.answer(number).is_ended]
    assert [answer.status for answer in refused] == [Code.UNAVAILABLE]
    assert refused[0].text == "overloaded: too many large bodies are being received or relayed"
    assert refused[0].head[b"grpc-retry-pushback-ms"] == b"1000"
    assert peer.ask().status == 0


# Reading


async def test_a_client_that_does_not_open_its_window_loses_the_answer() -> None:
    peer = Peer(serving())
    peer.opens_windows = False
    number = peer.call(bytes(100_000))
    await asyncio.sleep(25)
    peer.sync()
    assert peer.answer(number).reset is None
    await asyncio.sleep(21)
    peer.sync()
    assert peer.answer(number).reset == ErrorCode.ENHANCE_YOUR_CALM
    peer.h2.increment_flow_control_window(50_000)
    assert peer.ask().status == 0


async def test_a_client_that_reads_slowly_gets_its_answer() -> None:
    peer = Peer(serving())
    peer.opens_windows = False
    number = peer.call(bytes(100_000))
    while not peer.answer(number).is_ended:
        await asyncio.sleep(20)
        for window in (None, number):
            peer.h2.increment_flow_control_window(5000, window)
        peer.sync()
    assert peer.answer(number).messages == [bytes(100_000)]


def reading_nothing() -> Peer:
    """A client that stops to read, although its windows are large."""
    peer = Peer(serving())
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 2**30})
    peer.h2.increment_flow_control_window(2**30)
    peer.sync()
    peer.wire.stops_reading_after = 0
    return peer


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """Nothing is written while the transport is paused, and after a while the connection ends."""
    peer = reading_nothing()
    for _ in range(3):
        peer.call(bytes(900_000))
    written = len(peer.wire.received)
    assert written < 1_500_000
    peer.wire.send(frames.frame(frames.PING, 0, 0, bytes(8)))
    for _ in range(5):
        peer.h2.send_headers(peer.h2.get_next_available_stream_id(), headers(), end_stream=True)
        peer.wire.send(peer.h2.data_to_send())
    await asyncio.sleep(29)
    assert len(peer.wire.received) == written
    assert not peer.wire.closed
    await asyncio.sleep(10)
    assert peer.wire.aborted


async def test_a_client_that_reads_again_gets_everything() -> None:
    peer = reading_nothing()
    number = peer.call(bytes(900_000))
    for _ in range(10):
        await asyncio.sleep(20)
        peer.wire.unread //= 2  # It reads a little.
    assert not peer.wire.closed
    peer.wire.read_again()
    peer.sync()
    assert peer.answer(number).messages == [bytes(900_000)]


def failing(text: str) -> Wire:
    """A client whose calls all fail with a text, and which reads nothing."""

    def fail(stream: CallStream, head: CallHead) -> EchoCall:
        stream.finish(Code.UNIMPLEMENTED, text)
        return EchoCall(stream, head)

    wire = Wire(Server(clients=CLIENTS, make_call=fail))
    wire.send(START)
    wire.stops_reading_after = wire.high = 0
    return wire


@pytest.mark.parametrize(("text", "most"), [("no", 12_000), ("n" * 4096, 3000)])
async def test_a_client_that_calls_but_never_reads_is_cut_off_early(text: str, most: int) -> None:
    """After many errors, and after fewer if they are long."""
    wire = failing(text)
    for number in range(1, 60_000, 2):
        if wire.closed:
            break
        wire.send(frames.headers(number, BLOCK, ends=True))
    assert wire.aborted
    assert 1000 < number // 2 < most


async def test_a_client_that_reads_long_errors_late_stays() -> None:
    wire = failing("n" * 4096)
    for number in range(1, 6000, 2):
        wire.send(frames.headers(number, BLOCK, ends=True))
        if number % 1000 == 999:
            wire.read_again()
            wire.stops_reading_after = 0
    assert not wire.closed


async def test_unread_answers_are_bounded() -> None:
    peer = Peer(serving(max_unsent_bytes=100_000))
    peer.opens_windows = False
    number = peer.call(None, path=b"/t.T/Stream")
    for _ in range(3):
        peer.upload(number, message(bytes(70_000)))
        assert peer.answer(number).reset is None
    peer.upload(number, message(bytes(70_000)))
    assert peer.answer(number).reset == ErrorCode.ENHANCE_YOUR_CALM
    assert peer.server.calls[0].events[-1] == "cancelled"
    for _ in range(3):
        peer.h2.increment_flow_control_window(50_000)
        assert peer.ask(bytes(10_000)).status == 0


async def test_unread_empty_messages_share_objects() -> None:
    """An object of its own would take many times the five bytes of an empty message."""
    peer = Peer(serving())
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 0})
    number = peer.call(None, path=b"/t.T/Stream")
    sent = [b""] * 10_000 + [bytes(size) for size in (1000, 5, 30_000, 7)]
    for each in sent:
        peer.server.calls[0].stream.send(each)
    unsent = peer.wire.protocol.session.streams[number]._unsent
    assert unsent is not None
    assert len(unsent) < 60
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 65_535})
    peer.sync()
    assert peer.answer(number).messages == sent


async def test_a_small_limit_of_messages_allows_many_unread_answers() -> None:
    """They may be answers of many callers that share the connection."""
    limits = replace(LIMITS)
    limits.limit_messages(1000)
    peer = Peer(Server(limits=limits))
    peer.opens_windows = False
    number = peer.call(None, path=b"/t.T/Stream")
    for _ in range(200):
        peer.upload(number, message(bytes(1000)))
    assert peer.answer(number).reset is None


# Age


async def test_an_old_connection_is_drained() -> None:
    server = serving(max_connection_age_s=1000)
    peers = [Peer(server) for _ in range(20)]
    busy = peers[0]
    busy.call(path=b"/t.T/Hang")
    ages = [lasts_s(peer.wire) for peer in peers[1:]]
    found = await asyncio.gather(*ages)

    assert all(895 <= age <= 1110 for age in found)
    assert max(found) - min(found) > 30
    assert await lasts_s(busy.wire) > 1000
    server.calls[0].stream.reply(b"x", ())
    await asyncio.sleep(1)
    assert busy.wire.ended
    assert b"age limit" in busy.wire.received
    assert message(b"x") in busy.wire.received


async def test_calls_on_an_old_connection_are_cancelled_after_the_grace() -> None:
    server = serving(max_connection_age_s=1000, max_connection_age_grace_s=50)
    peer = Peer(server)
    peer.call(path=b"/t.T/Hang")
    assert 950 <= await lasts_s(peer.wire) <= 1170
    assert server.calls[0].events[-1] == "cancelled"
