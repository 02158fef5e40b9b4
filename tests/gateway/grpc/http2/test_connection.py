"""Calls over a connection, as a strict client sees them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.grpc.http2.peer import (
    START,
    Answer,
    EchoCall,
    Peer,
    Server,
    Wire,
    gzipped,
    headers,
    message,
    read_frames,
)
from tests.loops import run
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.connection.listener_context import connection_numbers
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import ErrorCode
from uncork_gateway.grpc.interfaces import CallHead
from uncork_gateway.grpc.statuses import Code

pytestmark = pytest.mark.virtual_time


ID = (b"x-request-id", b"one")


async def test_a_unary_call() -> None:
    peer = Peer(Server())
    answer = peer.ask(b"hello", more=[ID])

    assert answer.head == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-accept-encoding": b"identity,deflate,gzip",
    }
    assert answer.messages == [b"hello"]
    assert answer.trailers == {b"grpc-status": b"0", b"x-request-id": b"one"}
    assert answer.is_ended
    assert answer.reset is None
    assert peer.server.calls[0].events == [b"hello", "end"]


@pytest.mark.parametrize("size", [0, 1, 16_378, 16_379, 16_380, 65_530, 65_531, 999_999])
async def test_messages_of_any_size(size: int) -> None:
    peer = Peer(Server())
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    number = peer.call(body)

    assert peer.answer(number).messages == [body]
    assert peer.answer(number).status == 0
    assert peer.server.pool.used_bytes == 0


async def test_a_call_that_ends_with_an_error_has_trailers_only() -> None:
    peer = Peer(Server())
    answer = peer.ask(path=b"/t.T/None")
    assert answer.head[b":status"] == b"200"
    assert (answer.status, answer.text, answer.data) == (Code.UNIMPLEMENTED, "no such method", b"")
    assert answer.is_ended


async def test_a_client_that_still_sends_is_told_to_stop() -> None:
    peer = Peer(Server())
    number = peer.call(None, path=b"/t.T/None")
    assert peer.answer(number).status == Code.UNIMPLEMENTED
    assert peer.answer(number).reset == ErrorCode.NO_ERROR
    peer.wire.send(frames.frame(frames.DATA, 0, number, message(b"on its way")))

    assert peer.ask(b"next").messages == [b"next"]
    assert peer.goaway is None


@pytest.mark.parametrize(
    ("text", "sent"),
    [("50 % ü\n", "50 %25 %C3%BC%0A"), ("x" + "%" * 10_000, "x" + "%25" * 1365)],
    ids=["any characters", "long"],
)
async def test_a_status_text_is_escaped_and_cut_between_characters(text: str, sent: str) -> None:
    class Failing(EchoCall):
        def message_received(self, message: bytes) -> None:
            self.stream.finish(Code.INTERNAL, text, [(b"x-more", b"1")])

    answer = Peer(Server(make_call=Failing)).ask()
    assert (answer.text, answer.head[b"x-more"]) == (sent, b"1")


async def test_answers_larger_than_a_frame_of_headers() -> None:
    class Long(EchoCall):
        def end_received(self) -> None:
            self.stream.reply(b"", [(b"x-long", b"y" * 40_000)])

    wire = Wire(Server(make_call=Long))
    wire.send(START)
    wire.send(frames.headers(1, Encoder().encode(headers()), ends=False))
    wire.send(frames.frame(frames.DATA, frames.END_STREAM, 1, message(b"")))
    kinds = [kind for kind, _, _, _ in read_frames(wire.received)]
    assert kinds[-4:] == [frames.DATA, frames.HEADERS, frames.CONTINUATION, frames.CONTINUATION]


# What calls see


async def test_calls_see_head_lane_and_connection() -> None:
    server = Server()
    first, second = Peer(server), Peer(server)
    more = [(b"K-Bin".lower(), b"AAE="), (b"grpc-timeout", b"100m"), (b"user-agent", b"test")]
    first.ask(path=b"/a.B/C", more=more)
    second.ask()

    head = server.calls[0].head
    assert head == CallHead(
        b"/a.B/C", timeout_s=0.1, metadata=((b"k-bin", b"AAE="), (b"user-agent", b"test"))
    )
    numbers = [call.stream.connection.number for call in server.calls]
    assert numbers[0] != numbers[1]
    assert next(connection_numbers) > max(numbers)


async def test_lanes_are_the_lowest_free_numbers() -> None:
    peer = Peer(Server())
    numbers = [peer.call(path=b"/t.T/Hang") for _ in range(4)]
    assert [call.stream.lane for call in peer.server.calls] == [0, 1, 2, 3]
    for number in (numbers[2], numbers[1]):
        peer.h2.reset_stream(number)
    peer.sync()
    for _ in range(3):
        peer.call(path=b"/t.T/Hang")
    assert [call.stream.lane for call in peer.server.calls[4:]] == [1, 2, 4]


async def test_a_cancelled_call_is_told_so_once() -> None:
    peer = Peer(Server())
    number = peer.call(path=b"/t.T/Hang")
    peer.h2.reset_stream(number, ErrorCode.CANCEL)
    peer.sync()
    [call] = peer.server.calls
    assert call.events == [b"hello", "end", "cancelled"]
    call.stream.reply(b"too late", ())
    call.stream.send(b"too late")
    call.stream.finish(Code.OK)
    peer.wire.leave()
    await asyncio.sleep(1)

    assert call.events[-1:] == ["cancelled"]
    assert call.events.count("cancelled") == 1
    assert peer.answer(number) == Answer()


async def test_a_call_is_answered_once() -> None:
    class Twice(EchoCall):
        def end_received(self) -> None:
            self.stream.reply(b"first", ())
            self.stream.reply(b"second", ())
            self.stream.send(b"third")
            self.stream.finish(Code.INTERNAL)

    answer = Peer(Server(make_call=Twice)).ask()
    assert (answer.messages, answer.status) == ([b"first"], 0)


async def test_all_answers_of_a_turn_go_out_in_one_write() -> None:
    peer = Peer(Server())
    for _ in range(20):
        peer.call(path=b"/t.T/Hang")
    before = peer.wire.writes
    for call in peer.server.calls:
        call.stream.reply(b"x", ())
    assert peer.wire.writes == before
    await asyncio.sleep(0)

    assert peer.wire.writes == before + 1
    peer.sync()
    assert all(answer.messages == [b"x"] for answer in peer.answers.values())
    assert len(peer.answers) == 20


async def test_answers_to_what_came_together_go_out_in_one_write() -> None:
    wire = Wire(Server())
    block = Encoder().encode(headers())
    wire.send(START)
    before = wire.writes
    wire.send(b"".join(unary(number, block) for number in (1, 3, 5)))
    assert wire.writes == before + 1
    await asyncio.sleep(0)
    assert wire.writes == before + 1


def unary(number: int, block: bytes, body: bytes = b"hello") -> bytes:
    return frames.headers(number, block, ends=False) + frames.frame(
        frames.DATA, frames.END_STREAM, number, message(body)
    )


# Unusual but valid client behaviour


async def test_header_blocks_in_pieces_padding_and_priority() -> None:
    wire = Wire(Server())
    block = Encoder().encode(headers())
    wire.send(START)
    wire.send(
        frames.frame(
            frames.HEADERS, frames.HAS_PRIORITY | frames.PADDED, 1, b"\3" + bytes(5) + block[:9] + b"pad"
        )
    )
    wire.send(frames.frame(frames.CONTINUATION, 0, 1, block[9:10]))
    wire.send(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[10:]))
    wire.send(
        frames.frame(frames.DATA, frames.PADDED | frames.END_STREAM, 1, b"\2" + message(b"x") + b"\0\0")
    )
    wire.send(frames.frame(frames.PRIORITY, 0, 7, bytes(5)) + frames.frame(99, 0xFF, 5, b"unknown"))

    assert read_frames(wire.received)[-1][:3] == (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1)


async def test_trailers_of_the_client_end_its_messages() -> None:
    peer = Peer(Server())
    number = peer.call(None)
    peer.h2.send_data(number, message(b"x"))
    peer.h2.send_headers(number, [(b"x-trailer", b"1")], end_stream=True)
    peer.sync()
    assert peer.answer(number).messages == [b"x"]


async def test_settings_in_the_middle_change_the_windows_of_open_streams() -> None:
    peer = Peer(Server())
    peer.opens_windows = False
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 10})
    peer.sync()
    number = peer.call(b"x" * 100)
    assert len(peer.answer(number).data) == 10
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 4})
    peer.sync()
    peer.h2.increment_flow_control_window(6, number)
    peer.sync()
    assert len(peer.answer(number).data) == 10
    peer.h2.increment_flow_control_window(1, number)
    peer.sync()
    assert len(peer.answer(number).data) == 11
    assert peer.server.calls[0].stream.unsent_bytes == 94
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 1000})
    peer.sync()

    assert peer.answer(number).messages == [b"x" * 100]
    assert peer.answer(number).is_ended


async def test_small_answers_share_the_window_of_the_connection() -> None:
    """The h2 library raises if they exceed it."""
    peer = Peer(Server())
    peer.opens_windows = False
    answers = [peer.ask(b"x" * 10_000) for _ in range(8)]
    assert [answer.is_ended for answer in answers] == [True] * 6 + [False] * 2
    assert sum(len(answer.data) for answer in answers) == 65_535
    peer.h2.increment_flow_control_window(20_000)
    peer.sync()
    assert [answer.messages for answer in answers] == [[b"x" * 10_000]] * 8


async def test_streams_take_turns() -> None:
    """A large answer does not delay small ones."""
    peer = Peer(Server())
    peer.opens_windows = False
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 10_000_000})
    peer.sync()
    large, small = peer.call(b"l" * 900_000), peer.call(b"s" * 50_000)
    assert len(peer.answer(large).data) == 65_535
    assert not peer.answer(small).data
    for _ in range(100):
        peer.h2.increment_flow_control_window(60_000)
        peer.sync()
        if peer.answer(small).is_ended:
            break

    assert peer.answer(small).messages == [b"s" * 50_000]
    assert len(peer.answer(large).data) < 400_000


async def test_a_client_without_a_dynamic_table() -> None:
    """The h2 library raises if the server does not confirm it."""
    peer = Peer(Server())
    peer.h2.update_settings({frames.HEADER_TABLE_SIZE: 0})
    peer.sync()
    assert peer.ask().messages == [b"hello"]
    assert peer.ask(path=b"/t.T/None").status == Code.UNIMPLEMENTED


# Refusals


async def test_the_1001st_stream_is_refused() -> None:
    peer = Peer(Server())
    numbers = [peer.call(path=b"/t.T/Hang") for _ in range(1000)]
    refused = peer.h2.get_next_available_stream_id()
    peer.wire.send(frames.headers(refused, peer.h2.encoder.encode(headers()), ends=True))

    assert peer.wire.received.endswith(frames.reset(refused, ErrorCode.REFUSED_STREAM))
    assert len(peer.server.calls) == 1000
    peer.h2.reset_stream(numbers[0])
    peer.sync()
    peer.wire.send(unary(refused + 2, peer.h2.encoder.encode(headers())))
    assert len(peer.server.calls) == 1001


@pytest.mark.parametrize(
    ("changed", "status", "text"),
    [
        ((b":method", b"GET"), b"405", b"use POST: this port speaks gRPC only\n"),
        ((b":method", b"HEAD"), b"405", b""),
        (
            (b"content-type", b"application/json"),
            b"415",
            b"send content-type application/grpc: this port speaks gRPC only\n",
        ),
        ((b"content-type", b"application/grpc-web"), b"415", None),
    ],
)
async def test_requests_that_are_no_calls(
    changed: tuple[bytes, bytes], status: bytes, text: bytes | None
) -> None:
    peer = Peer(Server())
    fields = dict(headers()) | dict([changed, (b"x-request-id", b"mine")])
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 3})
    peer.sync()
    peer.h2.send_headers(1, list(fields.items()), end_stream=True)
    peer.sync()
    answer = peer.answer(1)
    assert (answer.head[b":status"], answer.head[b"x-request-id"]) == (status, b"mine")
    assert answer.is_ended
    assert text is None or answer.data == text
    assert not peer.server.calls
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 300})
    assert peer.ask().messages == [b"hello"]


@pytest.mark.parametrize(
    "content_type", [b"application/grpc+proto", b"application/grpc;x=y", b"Application/gRPC"]
)
async def test_content_types_of_grpc(content_type: bytes) -> None:
    peer = Peer(Server())
    fields = dict(headers()) | {b"content-type": content_type}
    peer.h2.send_headers(1, list(fields.items()), end_stream=True)
    peer.sync()
    assert peer.answer(1).status == 0


async def test_a_call_rejected_by_its_head() -> None:
    peer = Peer(Server())
    answer = peer.ask(more=[(b"grpc-timeout", b"5")])
    assert answer.status == Code.INVALID_ARGUMENT
    assert "eight digits and one of H, M, S, m, u, n, got '5'" in answer.text
    answer = peer.ask(more=[(b"grpc-encoding", b"snappy")])
    assert answer.status == Code.UNIMPLEMENTED
    assert "'snappy' is not supported; send gzip, deflate or identity" in answer.text
    assert answer.head[b"grpc-accept-encoding"] == b"identity,deflate,gzip"


async def test_a_message_over_the_limit_is_refused_by_its_prefix() -> None:
    """The client has not sent the message yet; the connection stays open and gets its windows back."""
    peer = Peer(Server())
    for _ in range(50):
        number = peer.call(None)
        peer.upload(number, message(b"x" * 1_000_001)[:60_000])
        answer = peer.answer(number)
        assert answer.status == Code.RESOURCE_EXHAUSTED
        assert answer.text == "the message has 1000001 bytes, and the limit is 1000000 bytes"
        assert answer.reset == ErrorCode.NO_ERROR
    assert peer.server.pool.used_bytes == 0
    assert peer.ask(b"x" * 1000).messages == [b"x" * 1000]


async def test_too_many_connections() -> None:
    server = Server(clients=ClientLimits(max_connections=2))
    peers = [Peer(server) for _ in range(2)]
    refused = Peer(server, connect=False)
    refused.h2.initiate_connection()
    refused.sync()
    assert refused.goaway == (ErrorCode.ENHANCE_YOUR_CALM, 0, "too many connections")
    assert refused.wire.ended
    assert all(peer.ask().status == 0 for peer in peers)
    peers[0].wire.leave()
    assert Peer(server).ask().status == 0
    refused.wire.leave()
    assert Peer(server, connect=False).wire.goaways()


@pytest.mark.parametrize("cut", [1, 2, 5, 24])
@pytest.mark.parametrize(
    "request_", [b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", b"POST http://x/ HTTP/1.1\r\n\r\n"]
)
async def test_http_1_is_told_where_to_go(request_: bytes, cut: int) -> None:
    wire = Wire(Server())
    wire.send(request_[:cut])
    wire.send(request_[cut:])
    head, _, text = wire.received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"connection: close" in head
    assert b"content-length: %d" % len(text) in head
    assert text == b"HTTP is elsewhere\n"
    assert wire.ended
    assert not wire.closed
    await asyncio.sleep(10)
    assert wire.closed


async def test_what_looks_like_http_1_is_an_error_after_the_preface() -> None:
    wire = Wire(Server())
    wire.send(frames.PREFACE)
    wire.send(b"GET / HTTP/1.1\r\n\r\n")
    assert [code for code, _, _ in wire.goaways()] == [ErrorCode.PROTOCOL_ERROR]


# The end


async def test_drain_answers_what_is_open_and_refuses_what_comes() -> None:
    server = Server()
    peer, idle = Peer(server), Peer(server)
    open_ = [peer.call(path=b"/t.T/Hang") for _ in range(2)]
    server.listener.drain()
    await asyncio.sleep(1)
    assert idle.wire.ended
    assert not peer.wire.ended
    peer.wire.send(unary(9, peer.h2.encoder.encode(headers())))
    assert frames.reset(9, ErrorCode.REFUSED_STREAM) in peer.wire.received
    assert len(server.calls) == 2
    for call in server.calls:
        call.stream.reply(b"x", ())
    await asyncio.sleep(1)

    received = peer.frames()
    assert (frames.GOAWAY, open_[-1]) in [
        (kind, int.from_bytes(data[:4], "big")) for kind, _, _, data in received
    ]
    assert [number for kind, _, number, _ in received if kind == frames.DATA] == open_
    assert peer.wire.ended


async def test_drain_waits_for_what_the_client_has_not_read() -> None:
    server = Server()
    peer = Peer(server)
    peer.opens_windows = False
    number = peer.call(b"x" * 100_000)
    server.listener.drain()
    await asyncio.sleep(1)
    assert not peer.wire.ended
    for window in (0, number):
        peer.wire.send(frames.window_update(window, 100_000))
    await asyncio.sleep(1)
    received = b"".join([data for kind, _, _, data in peer.frames() if kind == frames.DATA])
    assert received == message(b"x" * 100_000)
    assert peer.wire.ended


@pytest.mark.parametrize("is_error", [True, False])
async def test_drain_waits_for_a_client_that_does_not_read(is_error: bool) -> None:
    server = Server()
    peer = Peer(server)
    peer.call(path=b"/t.T/Hang")
    peer.wire.protocol.pause_writing()
    answer = server.calls[0].stream
    if is_error:
        answer.finish(Code.INTERNAL, "answer")
    else:
        answer.reply(b"answer", ())
    server.listener.drain()
    await asyncio.sleep(1)
    assert b"answer" not in peer.wire.received
    peer.wire.read_again()
    await asyncio.sleep(1)
    assert b"answer" in peer.wire.received
    assert peer.wire.ended


@pytest.mark.parametrize("is_new", [True, False])
async def test_closing_as_http_connections_do(is_new: bool) -> None:
    """A connection ends after its calls, and a new one is refused."""
    server = Server()
    peer = None if is_new else Peer(server)
    server.context.closing = True
    if peer is None:
        peer = Peer(server, connect=False)
        peer.h2.initiate_connection()
        peer.sync()
    else:
        peer.call()
        assert frames.reset(1, ErrorCode.REFUSED_STREAM) in peer.wire.received
    await asyncio.sleep(1)
    assert peer.wire.received.count(b"the server is shutting down") == 1
    assert peer.wire.ended
    assert not server.calls


async def test_a_listener_that_retires_accepts_new_connections() -> None:
    """Clients on the others get GOAWAY, and connect again, to another server if there is one."""
    server = Server()
    peer = Peer(server)
    running = peer.call(path=b"/t.T/Hang")
    server.listener.retire()
    await asyncio.sleep(1)
    peer.sync()
    assert peer.goaway is not None
    assert not peer.wire.ended
    server.calls[0].stream.reply(b"late", ())
    await asyncio.sleep(1)
    assert (b"late" in peer.wire.received, peer.wire.ended) == (True, True)
    assert running == 1
    assert Peer(server).ask().messages == [b"hello"]


async def test_a_listener_is_drained_when_its_last_connection_has_ended() -> None:
    server = Server()
    wires = [Wire(server) for _ in range(2)]
    drained = asyncio.create_task(server.listener.drained())
    for wire in wires:
        await asyncio.sleep(1)
        assert not drained.done()
        wire.leave()
    await drained


async def test_a_client_that_has_reset_the_connection_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_connected() -> None:
        raise OSError(107, "Transport endpoint is not connected")

    server = Server()
    peer = Peer(server)
    monkeypatch.setattr(peer.wire, "write_eof", not_connected)
    server.listener.drain()
    await asyncio.sleep(1)
    assert peer.wire.aborted


async def test_close_cancels_all_calls() -> None:
    server = Server()
    peer = Peer(server)
    peer.call(path=b"/t.T/Hang")
    server.listener.close()
    assert server.calls[0].events[-1] == "cancelled"
    assert peer.wire.closed


# Any cut of the input


def script(windows: list[int]) -> bytes:
    """What a client sends that does about everything."""
    encoder = Encoder()
    parts = [
        frames.PREFACE,
        frames.settings({frames.INITIAL_WINDOW_SIZE: 40}),
        frames.window_update(0, 10_000),
    ]
    number = 1
    for window in windows:
        block = encoder.encode(
            headers(b"/t.T/Stream", (b"x-%d" % (window % 3), b"1"), (b"grpc-encoding", b"gzip"), ID)
        )
        parts += [
            frames.frame(frames.HEADERS, 0, number, block[:20]),
            frames.frame(frames.CONTINUATION, frames.END_HEADERS, number, block[20:]),
            frames.frame(frames.DATA, 0, number, message(b"a" * 30) + gzipped(b"b" * 30)[:9]),
            frames.frame(frames.PING, 0, 0, b"pingping"),
            frames.window_update(number, window),
            frames.frame(frames.DATA, frames.PADDED, number, b"\4" + gzipped(b"b" * 30)[9:] + bytes(4)),
            unary(number + 2, encoder.encode(headers(b"/t.T/Echo", ID)), b"c" * window),
            frames.reset(number, ErrorCode.CANCEL)
            if window % 2
            else frames.frame(frames.DATA, frames.END_STREAM, number, message(b"d")),
        ]
        number += 4
    return b"".join([*parts, frames.settings({frames.INITIAL_WINDOW_SIZE: 1000})])


@given(st.lists(st.integers(1, 100), min_size=1, max_size=4), st.data())
def test_any_cut_of_the_input_means_the_same(windows: list[int], data: st.DataObject) -> None:
    sent = script(windows)
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=20))

    async def results(cuts: list[int]) -> object:
        server = Server()
        wire = Wire(server)
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            wire.send(sent[start:end])
        await asyncio.sleep(0)
        # Frames of several streams may be written in another order.
        cancelled = {1 + 2 * at for at, call in enumerate(server.calls) if call.events[-1] == "cancelled"}
        written = sorted(read_frames(wire.received), key=lambda frame: frame[2])
        streams: dict[int, bytes] = {}
        for kind, _, number, payload in written:
            if kind == frames.DATA and number not in cancelled:
                streams[number] = streams.get(number, b"") + payload
        others = [frame for frame in written if frame[0] == frames.HEADERS]
        return [call.events for call in server.calls], streams, others, server.pool.used_bytes

    assert run(results(sorted(cuts))) == run(results([]))


@pytest.mark.parametrize(
    ("path", "end", "has_ended"),
    [
        (b"/t.T/Echo", frames.frame(frames.DATA, frames.END_STREAM, 1), True),
        (b"/t.T/Stream", frames.frame(frames.DATA, frames.END_STREAM, 1), True),
        (b"/t.T/Hang", frames.frame(frames.DATA, frames.END_STREAM, 1), False),
        (b"/t.T/Hang", frames.reset(1, ErrorCode.CANCEL), True),
        (b"/t.T/None", b"", True),
    ],
)
@pytest.mark.parametrize("cut", [0, 7, 10])
async def test_ended_calls_and_connections_leave_nothing_to_the_garbage_collector(
    path: bytes, end: bytes, has_ended: bool, cut: int
) -> None:
    """The collector runs rarely: memory would grow with messages, and with clients that come and go."""
    written = message(b"hello")
    pieces = [frames.frame(frames.DATA, 0, 1, piece) for piece in (written[:cut], written[cut:])]
    opened = frames.headers(1, Encoder().encode(headers(path)), ends=False)
    server = Server()
    gc.disable()
    try:
        wire = Wire(server)
        wire.send(START + opened + b"".join(pieces) + end)
        await asyncio.sleep(0)
        call = weakref.ref(server.calls.pop())
        assert (call() is None) == has_ended
        wire.leave()
        connection = weakref.ref(wire.protocol)
        del wire.protocol
        await asyncio.sleep(0)
        assert (call(), connection()) == (None, None)
    finally:
        gc.enable()
