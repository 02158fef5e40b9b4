"""What clients may not do: every broken rule ends the stream or the connection, with the right code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hpack import Encoder

from tests.gateway.grpc.http2.mutations import outcomes
from tests.gateway.grpc.http2.peer import LIMITS, START, Peer, Server, Wire, headers, message
from tests.gateway.running import turns
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    frame,
)

pytestmark = pytest.mark.virtual_time

HANG = Encoder().encode(headers(b"/t.T/Hang"))
ECHO = Encoder().encode(headers())
STREAM = Encoder().encode(headers(b"/t.T/Stream"))
OPEN = frames.headers(1, HANG, ends=False)
HALF = frames.headers(1, HANG, ends=True)
PROTOCOL, SIZE, FLOW = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.FLOW_CONTROL_ERROR
CALM, CLOSED = ErrorCode.ENHANCE_YOUR_CALM, ErrorCode.STREAM_CLOSED


def setting(name: int, value: int) -> bytes:
    return frames.settings({name: value})


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        # Sizes
        (bytes((0, 0x40, 1, DATA, 0, 0, 0, 0, 1)), SIZE),
        (frame(SETTINGS, 0, 0, bytes(5)), SIZE),
        (frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
        (frame(PING, 0, 0, bytes(7)), SIZE),
        (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
        (OPEN + frame(WINDOW_UPDATE, 0, 1, bytes(5)), SIZE),
        (frame(GOAWAY, 0, 0, bytes(7)), SIZE),
        (frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, bytes(4)), SIZE),
        (OPEN + frame(DATA, PADDED, 1), SIZE),
        # Streams
        (frame(DATA, 0, 0, bytes(20)), PROTOCOL),
        (frame(HEADERS, END_HEADERS, 0, HANG), PROTOCOL),
        (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
        (frame(RST_STREAM, 0, 0, bytes(4)), PROTOCOL),
        (frame(SETTINGS, 0, 1), PROTOCOL),
        (frame(PING, 0, 1, bytes(8)), PROTOCOL),
        (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
        (frames.headers(2, HANG, ends=True), PROTOCOL),
        (frame(DATA, 0, 1, bytes(20)), PROTOCOL),
        (frame(RST_STREAM, 0, 1, bytes(4)), PROTOCOL),
        (frames.window_update(1, 1), PROTOCOL),
        (OPEN + frames.reset(1, 8) + frames.headers(1, HANG, ends=True), CLOSED),
        # Frames that may not come, or not there
        (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + HANG), PROTOCOL),
        (frame(CONTINUATION, END_HEADERS, 1, HANG), PROTOCOL),
        (frame(HEADERS, 0, 1, HANG[:5]) + frame(PING, 0, 0, bytes(8)), PROTOCOL),
        (frame(HEADERS, 0, 1, HANG[:5]) + frame(CONTINUATION, END_HEADERS, 3, HANG[5:]), PROTOCOL),
        (frame(HEADERS, 0, 1, HANG[:5]) + frame(99, 0, 1), PROTOCOL),
        # Padding
        (OPEN + frame(DATA, PADDED, 1, b"\x14" + bytes(19)), PROTOCOL),
        (frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + HANG), PROTOCOL),
        # Settings
        (setting(frames.ENABLE_PUSH, 2), PROTOCOL),
        (setting(frames.INITIAL_WINDOW_SIZE, 2**31), FLOW),
        (setting(frames.MAX_FRAME_SIZE, 16_383), PROTOCOL),
        (setting(frames.MAX_FRAME_SIZE, 2**24), PROTOCOL),
        # Windows
        (frames.window_update(0, 0), PROTOCOL),
        (frames.window_update(0, 2**31 - 1), FLOW),
        (
            HALF + frames.window_update(1, 2**31 - 1 - 65_535) + setting(frames.INITIAL_WINDOW_SIZE, 65_536),
            FLOW,
        ),
        # Header blocks
        (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\xc7"), ErrorCode.COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\x00\x05ab"), ErrorCode.COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\x3f\xff\xff\x07"), ErrorCode.COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\x20\x3f\xe1\x1f\x20" + HANG), ErrorCode.COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\0\x01a\x7f\xf3\x7e" + b"b" * 16_370), CALM),
        (frame(HEADERS, 0, 1, bytes(16_000)) + frame(CONTINUATION, 0, 1, bytes(400)), CALM),
    ],
)
async def test_errors_of_connections(sent: bytes, code: ErrorCode) -> None:
    server = Server()
    wire = Wire(server)
    wire.send(START + sent)
    [(found, last, text)] = wire.goaways()
    assert (found, bool(text)) == (code, True)
    assert last == (1 if server.calls else last)
    assert wire.ended
    assert all(call.events[-1] == "cancelled" for call in server.calls)
    wire.send(frames.headers(99, HANG, ends=True))
    await asyncio.sleep(10)
    assert wire.closed
    assert server.listener.connections == 1  # asyncio reports the end


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (OPEN + frames.window_update(1, 0), PROTOCOL),
        (OPEN + frames.window_update(1, 2**31 - 1), FLOW),
        (HALF + frame(DATA, 0, 1, bytes(20)), CLOSED),
        (HALF + frames.headers(1, HANG, ends=True), CLOSED),
        (OPEN + frames.headers(1, Encoder().encode([(b"x", b"y")]), ends=False), PROTOCOL),
        (OPEN + frames.headers(1, Encoder().encode([(b":x", b"y")]), ends=True), PROTOCOL),
        (frame(PRIORITY, 0, 1, bytes(4)), SIZE),
        (
            OPEN + frame(DATA, 0, 1, message(bytes(40))) + frames.reset(1, 8) + frame(DATA, 0, 1, bytes(20)),
            CLOSED,
        ),
        (frames.headers(1, Encoder().encode(headers(b"/", (b"content-length", b"21"))), ends=True), PROTOCOL),
        (
            frames.headers(1, Encoder().encode(headers(b"/", (b"content-length", b"21"))), ends=False)
            + frame(DATA, 0, 1, message(bytes(17))),
            PROTOCOL,
        ),
    ],
)
async def test_errors_of_streams(sent: bytes, code: ErrorCode) -> None:
    """The connection and other calls go on."""
    server = Server()
    wire = Wire(server)
    wire.send(START + sent)
    assert wire.resets() == [(1, code)]
    assert not wire.goaways()
    assert all(call.events[-1] == "cancelled" for call in server.calls)
    wire.send(frames.headers(5, Encoder().encode(headers()), ends=False))
    wire.send(frame(DATA, END_STREAM, 5, message(b"hello")))
    assert message(b"hello") in wire.received


@pytest.mark.parametrize(
    ("left_out", "added"),
    [
        ("", (b"X-Upper", b"1")),
        ("", (b"connection", b"close")),
        ("", (b"transfer-encoding", b"chunked")),
        ("", (b"keep-alive", b"5")),
        ("", (b"proxy-connection", b"close")),
        ("", (b"upgrade", b"h2c")),
        ("te", (b"te", b"gzip")),
        ("", (b"x", b"a\r\nb")),
        ("", (b"x\0", b"a")),
        ("", (b"", b"a")),
        ("", (b"x:y", b"a")),
        ("", (b":path", b"/again")),
        ("", (b":unknown", b"1")),
        (":authority", (b":authority", b"late")),
        ("", (b"content-length", b"-5")),
        ("", (b"content-length", b"9" * 5000)),
        (":method", None),
        (":scheme", None),
        (":path", None),
    ],
)
async def test_malformed_heads(left_out: str, added: tuple[bytes, bytes] | None) -> None:
    fields = [field for field in headers() if field[0] != left_out.encode()]
    wire = Wire(Server())
    wire.send(START + frames.headers(1, Encoder().encode(fields + ([added] if added else [])), ends=True))
    assert wire.resets() == [(1, PROTOCOL)]


@pytest.mark.parametrize(
    "sent",
    [
        frames.PREFACE + frame(PING, 0, 0, bytes(8)),
        frames.PREFACE + frame(SETTINGS, ACK, 0),
        frames.PREFACE + frames.headers(1, HANG, ends=True),
        b"\x16\x03\x01\x02\x00",
        frames.PREFACE[:-1] + b"x",
        b"INVALID PREFACE\r\n\r\n",
    ],
)
async def test_connections_that_do_not_begin_as_they_must(sent: bytes) -> None:
    wire = Wire(Server())
    wire.send(sent)
    [(code, _, _)] = wire.goaways()
    assert code == PROTOCOL
    assert wire.ended


def starved(server: Server) -> Wire:
    """Fill the pool, and return a connection that waits for nothing else."""
    server.pool.used_bytes = server.pool.max_bytes
    first = Wire(server)
    first.send(START + OPEN + upload(3))
    return first


def upload(pieces: int) -> bytes:
    """The DATA of a message of 9 MB that has just begun."""
    return frame(DATA, 0, 1, message(bytes(9_000_000))[:16_384]) + (pieces - 1) * frame(
        DATA, 0, 1, bytes(16_384)
    )


LARGE = replace(LIMITS, max_message_bytes=10_000_000)


async def test_more_data_than_the_window_of_the_connection() -> None:
    server = Server(limits=LARGE, pool_bytes=100_000_000)
    starved(server)
    wire = Wire(server)
    wire.send(START + OPEN + upload(3))
    assert not wire.goaways()
    wire.send(frame(DATA, 0, 1, bytes(16_384)))
    assert wire.goaways() == [(FLOW, 1, "more DATA than the connection's window")]


async def test_more_data_than_the_window_of_a_stream() -> None:
    server = Server(limits=LARGE, pool_bytes=100_000_000)
    wire = Wire(server)
    wire.send(START + OPEN + upload(3))
    starved(server)
    wire.send(frame(DATA, 0, 1, bytes(16_384)) * 61)
    assert not wire.resets()
    wire.send(frame(DATA, 0, 1, bytes(16_384)))
    assert wire.resets() == [(1, FLOW)]
    assert not wire.goaways()


# Floods


def flood(wire: Wire, sent: Iterator[bytes]) -> int:
    """Send until the server has had enough; returns how many were accepted."""
    for count, piece in enumerate(sent):
        if wire.ended:
            [(code, _, _)] = wire.goaways()
            assert code == CALM
            return count
        wire.send(piece)
    raise AssertionError("the server has never had enough")


def repeat(piece: bytes, *, times: int = 5000) -> Iterator[bytes]:
    return iter([piece] * times)


# Each of these values would change the windows of all streams.
MANY_WINDOWS = b"".join([frames.settings({frames.INITIAL_WINDOW_SIZE: n})[9:] for n in range(2700)])


@pytest.mark.parametrize(
    ("opening", "piece"),
    [
        (OPEN, frame(PING, 0, 0, bytes(8))),
        (OPEN, frame(PING, ACK, 0, bytes(8))),
        (OPEN, frames.settings({})),
        (OPEN, setting(frames.INITIAL_WINDOW_SIZE, 10) + setting(frames.INITIAL_WINDOW_SIZE, 20)),
        (OPEN, frame(SETTINGS, 0, 0, MANY_WINDOWS)),
        (OPEN, frame(SETTINGS, ACK, 0)),
        (OPEN, frame(PRIORITY, 0, 5, bytes(5))),
        (OPEN, frame(77, 0, 5)),
        (OPEN, frame(DATA, 0, 1)),
        (OPEN, frame(DATA, PADDED, 1, b"\x09" + bytes(9))),
        (OPEN, frame(DATA, 0, 1, b"x")),
        (OPEN, frames.reset(1, ErrorCode.CANCEL)),
        (OPEN, frames.window_update(0, 1)),
        (OPEN, frames.window_update(1, 1)),
        (OPEN, frame(GOAWAY, 0, 0, bytes(8))),
        (frame(HEADERS, 0, 1, HANG[:5]), frame(CONTINUATION, 0, 1)),
    ],
)
async def test_floods_of_frames_that_bring_no_call_on(opening: bytes, piece: bytes) -> None:
    wire = Wire(Server())
    wire.send(START + opening)
    assert 1 <= flood(wire, repeat(piece)) <= 510


@pytest.mark.parametrize(
    "last",
    [
        frames.reset(0, ErrorCode.CANCEL),
        frames.window_update(0, 0),
        frames.window_update(0, 2**31 - 1),
        frame(PRIORITY, 0, 0, bytes(4)),
        frame(DATA, 0, 0, bytes(20)),
    ],
    ids=["CVE-2023-44487", *["CVE-2025-8671"] * 4],
)
async def test_calls_that_are_reset_at_once(last: bytes) -> None:
    """By the client, or by the server because of a wrong frame."""

    def sent() -> Iterator[bytes]:
        for number in range(1, 20_000, 2):
            opened = frames.headers(number, HANG, ends=last[3] in (DATA, RST_STREAM))
            yield opened + last[:5] + number.to_bytes(4, "big") + last[9:]

    server = Server()
    wire = Wire(server)
    wire.send(START)
    assert flood(wire, sent()) <= 1010
    assert all(call.events[-1] == "cancelled" for call in server.calls)


async def test_windows_of_many_streams_that_change_again_and_again() -> None:
    """Each change takes time for each stream."""
    wire = Wire(Server())
    wire.send(START + b"".join([frames.headers(number, HANG, ends=True) for number in range(1, 2000, 2)]))
    await turns(20)
    assert wire.is_read
    assert flood(wire, (setting(frames.INITIAL_WINDOW_SIZE, size) for size in range(1, 9999))) <= 10


async def test_streams_beyond_the_limit_again_and_again() -> None:
    server = Server(limits=replace(LIMITS, max_streams=10))
    wire = Wire(server)
    wire.send(START + frame(SETTINGS, ACK, 0))
    assert flood(wire, (frames.headers(number, HANG, ends=True) for number in range(1, 9999, 2))) <= 220
    assert len(server.calls) == 10


async def test_a_client_that_has_not_seen_the_limit_yet_may_exceed_it() -> None:
    server = Server(limits=replace(LIMITS, max_streams=10))
    wire = Wire(server)
    wire.send(START)
    for number in range(1, 2001, 2):
        wire.send(frames.headers(number, HANG, ends=True))
    assert not wire.ended
    assert len(wire.resets()) == 990


async def test_a_header_bomb() -> None:
    """One large entry of the table, and references to it of one byte each."""
    wire = Wire(Server())
    block = b"\x40\x01a\x7f" + b"\xa1\x1e" + b"b" * 4000 + b"\xbe" * 1000
    wire.send(START + frames.headers(1, block, ends=True))
    [(code, _, text)] = wire.goaways()
    assert (code, text) == (CALM, "the headers exceed 16384 bytes")


def many_fields(number: int, fields: int) -> bytes:
    """A head with fields of HPACK's static table, of one byte each; each head is another."""
    block = HANG + b"\x00\x01n\x05%05d" % number + bytes((0x80 | 21,)) * (fields - 7)
    return frames.headers(number, block, ends=True)


async def test_a_flood_of_header_fields() -> None:
    wire = Wire(Server())
    wire.send(START)
    for sent in range(1, 1000):
        wire.send(many_fields(2 * sent + 1, 100))
        if wire.ended:
            break
    assert sent <= 150
    [(code, _, text)] = wire.goaways()
    assert (code, text) == (CALM, "too many header fields")


def many_codes(number: int, _: int) -> bytes:
    """A head with a long value in Huffman codes, which takes some 15 ms to read."""
    return frame(HEADERS, END_HEADERS | END_STREAM, number, HUFFMAN)


HUFFMAN = Encoder().encode([*headers(), (b"x", b"\xff\xfe" * 1900)])


@pytest.mark.parametrize(
    ("head", "in_a_turn"),
    [(many_fields, 14), (many_codes, 1)],
    ids=["fields", "codes"],
)
async def test_heads_that_are_slow_to_read_are_read_in_several_turns(
    head: Callable[[int, int], bytes], in_a_turn: int
) -> None:
    """Other connections get their turns, and nothing more is read from this one meanwhile."""
    server = Server()
    wire = Wire(server)
    wire.send(START + b"".join([head(number, 30) for number in range(1, 61, 2)]))
    assert (len(server.calls), wire.is_read) == (in_a_turn, False)
    wire.send(head(61, 30)[:20])
    wire.send(head(61, 30)[20:])
    while not wire.is_read:
        before = len(server.calls)
        await turns(1)
        assert before < len(server.calls) <= before + in_a_turn
    assert len(server.calls) == 31
    assert not wire.ended


@pytest.mark.parametrize(
    ("head", "heads", "in_a_turn"), [(many_codes, 1, 1), (many_fields, 30, 10)], ids=["codes", "fields"]
)
async def test_the_heads_of_many_connections_share_a_turn(
    head: Callable[[int, int], bytes], heads: int, in_a_turn: int
) -> None:
    server = Server()
    wires = [Wire(server) for _ in range(50)]
    for wire in wires:
        wire.send(START)
    for wire in wires:
        wire.send(b"".join([head(number, 95) for number in range(1, 2 * heads, 2)]))
    assert len(server.calls) <= in_a_turn + (len(wires) if heads > 1 else 0)
    while not all(wire.is_read for wire in wires):
        before = len(server.calls)
        await turns(1)
        assert len(server.calls) - before <= in_a_turn
    assert len(server.calls) == 50 * heads


def small_frames(number: int, count: int) -> bytes:
    return frame(DATA, 0, number, b"x" * 16) * count


async def test_a_message_in_many_small_frames_is_read_in_several_turns() -> None:
    """Other connections get their turns, and nothing more is read from this one meanwhile."""
    server = Server()
    wire, other = Wire(server), Peer(server)
    wire.send(START + frames.headers(1, ECHO, ends=False))
    wire.send(frame(DATA, 0, 1, message(b"x" * 160_011)[:16]) + small_frames(1, 5000))
    stream = wire.protocol.session.streams[1]
    assert (16 * 1000 < stream.received_bytes <= 16 * 1251, wire.is_read) == (True, False)
    assert other.ask().status == 0
    for more in (small_frames(1, 5000), b""):
        before = stream.received_bytes
        while not wire.is_read:
            await turns(1)
            assert stream.received_bytes - before <= 16 * 1251
            before = stream.received_bytes
        wire.send(more)
    wire.send(frame(DATA, END_STREAM, 1))
    assert server.calls[0].events == [b"x" * 160_011, "end"]


@pytest.mark.parametrize("in_frames", [False, True])
async def test_many_messages_of_a_stream_are_read_in_several_turns(in_frames: bool) -> None:
    """In order, with the end of the stream behind the last one, whether each has a frame of its own."""
    server = Server()
    wire, other = Wire(server), Peer(server)
    wire.send(START + frames.headers(1, STREAM, ends=False))
    sent = [b"%016d" % number for number in range(600)]
    data = [message(one) for one in sent]
    whole = data if in_frames else [b"".join(data)]
    wire.send(b"".join([frame(DATA, 0, 1, part) for part in whole]) + frame(DATA, END_STREAM, 1))
    events = server.calls[0].events
    assert (80 < len(events) <= 100, wire.is_read) == (True, False)
    assert other.ask().status == 0
    most = 0
    while not wire.is_read:
        before = len(events)
        await turns(1)
        most = max(most, len(events) - before)
    assert most <= 101
    assert events == [*sent, "end"]
    assert not wire.protocol.session.streams
    assert server.pool.used_bytes == 0


@pytest.mark.parametrize("how", ["leave", "reset"])
async def test_a_client_that_stops_while_its_messages_wait(how: str) -> None:
    server = Server()
    wire = Wire(server)
    wire.send(START + frames.headers(1, STREAM, ends=False))
    wire.send(frame(DATA, 0, 1, message(b"one") * 600))
    if how == "leave":
        wire.leave()
    else:
        wire.send(frames.reset(1, ErrorCode.CANCEL))
    await turns(10)
    *events, last = server.calls[0].events
    assert (last, len(events) < 600) == ("cancelled", how == "leave")
    assert server.pool.used_bytes == 0


async def test_messages_that_wait_for_the_call_and_for_the_turn() -> None:
    server = Server()
    wire = Wire(server)
    wire.send(START + frames.headers(1, STREAM, ends=False))
    call = server.calls[0]
    call.stream.pause()
    wire.send(frame(DATA, END_STREAM, 1, message(b"one") * 600))
    assert call.events == []
    call.stream.resume()
    assert 0 < len(call.events) <= 100
    call.stream.pause()
    before = len(call.events)
    await turns(3)
    assert len(call.events) == before
    call.stream.resume()
    await turns(20)
    assert call.events == [b"one"] * 600 + ["end"]


async def test_a_client_that_leaves_while_its_frames_wait() -> None:
    server = Server()
    wire = Wire(server)
    wire.send(START + b"".join([many_fields(number, 30) for number in range(1, 201, 2)]))
    wire.leave()
    await turns(2)
    assert len(server.calls) == 14
    assert not server.listener.connections


# Not floods


async def test_a_client_with_thirty_fields_in_each_call() -> None:
    """Of which one, the id of a trace, is another in each."""
    peer = Peer(Server())
    more = [(b"x-%d" % at, b"y") for at in range(22)]
    for number in range(1000):
        assert peer.ask(more=[*more, (b"traceparent", b"%d" % number)]).status == 0


async def test_a_client_that_pings_with_each_message() -> None:
    """As grpc-go does."""
    peer = Peer(Server())
    for _ in range(600):
        peer.h2.ping(bytes(8))
        peer.h2.ping(bytes(8))
        assert peer.ask().status == 0
    number = peer.call(None, path=b"/t.T/Stream")
    for _ in range(600):
        peer.h2.ping(bytes(8))
        peer.h2.send_data(number, message(bytes(20)))
        peer.sync()
    assert len(peer.answer(number).messages) == 600
    assert peer.goaway is None


async def test_a_client_that_pings_for_hours() -> None:
    peer = Peer(Server())
    for _ in range(600):
        peer.h2.ping(bytes(8))
        peer.sync()
        await asyncio.sleep(10)
    assert len(peer.acknowledged_pings) == 600


async def test_a_client_that_cancels_half_of_its_calls() -> None:
    """As hedging does."""
    peer = Peer(Server())
    for _ in range(1100):
        number = peer.call(path=b"/t.T/Hang")
        peer.h2.reset_stream(number)
        assert peer.ask().status == 0
    assert peer.goaway is None


async def test_1000_calls_that_are_cancelled_at_once() -> None:
    """As a proxy does when its client goes, or when all reach their deadline."""
    peer = Peer(Server())
    for number in [peer.call(path=b"/t.T/Hang") for _ in range(1000)]:
        peer.h2.reset_stream(number)
    peer.sync()
    assert peer.goaway is None


async def test_a_client_that_opens_small_windows_for_a_large_answer() -> None:
    peer = Peer(Server())
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 4096})
    peer.sync()
    number = peer.call(bytes(999_000))
    for _ in range(10):
        assert peer.ask(bytes(20_000)).status == 0
    assert peer.answer(number).messages == [bytes(999_000)]


# Mutated input, of which scripts/fuzz streams tries more


async def test_mutated_input_ends_in_goaway_or_goes_on() -> None:
    found = await outcomes(range(400), seed=1)
    assert found.total() == 400
    assert found["open"] > 40
    assert found["PROTOCOL_ERROR"] > 40
    assert {"COMPRESSION_ERROR", "FRAME_SIZE_ERROR", "FLOW_CONTROL_ERROR"} <= set(found)
