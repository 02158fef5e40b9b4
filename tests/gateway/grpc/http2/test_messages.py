"""Messages: prefixes, compression, limits; large ones are inflated in threads, in order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.grpc.http2.peer import LIMITS, EchoCall, Peer, Server, gzipped, message
from tests.gateway.running import turns
from tests.loops import run
from uncork_gateway.connection import decompression
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.statuses import Code

GZIP = (b"grpc-encoding", b"gzip")


async def until(happened: Callable[[], bool]) -> None:
    """Wait for a thread."""
    while not happened():
        await turns(1)
    await turns(1)


async def ended(call: EchoCall) -> None:
    """Wait until a call has seen the end of its messages."""
    await until(lambda: bool(call.events) and isinstance(call.events[-1], str))


def echo(peer: Peer, *pieces: bytes, path: bytes = b"/t.T/Stream") -> EchoCall:
    """Send pieces of a compressed stream; returns its call."""
    number = peer.call(None, path=path, more=[GZIP])
    for piece in pieces:
        assert not peer.upload(number, piece)
    peer.h2.end_stream(number)
    peer.sync()
    return peer.server.calls[-1]


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("size", [0, 10, 100_000, 900_000])
async def test_compressed_messages(encoding: bytes, size: int) -> None:
    peer = Peer(Server())
    body = b"x" * size
    number = peer.call(None, more=[(b"grpc-encoding", encoding)])
    compressor = zlib.compressobj(wbits=31 if encoding == b"gzip" else 15)
    compressed = compressor.compress(body) + compressor.flush()
    peer.upload(number, message(compressed, flag=1), ends=True)
    call = peer.server.calls[0]
    await ended(call)

    assert call.events == [body, "end"]
    assert peer.server.pool.used_bytes == 0


async def test_messages_keep_their_order() -> None:
    """Small ones behind a large one wait for it, wherever the frames are cut."""
    bodies = [b"1", b"2" * 900_000, b"3", b"4" * 800_000, b"", b"5" * 700_000, b"6"]
    data = b"".join([gzipped(body) if len(body) != 1 else message(body) for body in bodies])
    for cut in (3, 100, len(data) // 2, len(data) - 1):
        server = Server()
        call = echo(Peer(server), data[:cut], data[cut:])
        await ended(call)
        assert call.events == [*bodies, "end"]
        assert server.pool.used_bytes == 0


async def test_little_is_inflated_in_one_turn() -> None:
    """A thousand messages of 200 kB each, which take no space on the wire, do not stop the loop."""
    server = Server()
    peer = Peer(server)
    call = echo(peer, b"".join([gzipped(bytes(200_000))] * 50), path=b"/t.T/Hang")
    assert len(call.events) < 5
    await ended(call)
    assert call.events == [bytes(200_000)] * 50 + ["end"]
    assert server.pool.used_bytes == 0


async def test_a_new_limit_holds_from_the_next_message_of_a_stream_on() -> None:
    """Also if a message has come in several frames before."""
    server = Server(limits=replace(LIMITS, max_message_bytes=1000))
    peer = Peer(server)
    number = peer.call(None, path=b"/t.T/Stream")
    for piece in (message(b"a" * 500)[:100], message(b"a" * 500)[100:]):
        peer.upload(number, piece)
    server.listener.change(max_message_bytes=5000, max_connection_age_s=None)
    peer.upload(number, message(b"b" * 2000))
    assert peer.answer(number).messages == [b"a" * 500, b"b" * 2000]


async def test_no_window_while_a_message_is_inflated() -> None:
    server = Server(limits=replace(LIMITS, max_message_bytes=50_000_000))
    peer = Peer(server)
    number = peer.call(None, path=b"/t.T/Hang", more=[GZIP])
    peer.upload(number, gzipped(bytes(8_000_000)))
    rest = peer.upload(number, message(b"x" * 10_000_000))
    assert len(rest) > 8_000_000
    while rest:
        await turns(1)
        peer.sync()
        rest = peer.upload(number, rest)
    assert peer.server.calls[0].events == [bytes(8_000_000), b"x" * 10_000_000]


@pytest.mark.parametrize("steps", [0, 1000])
async def test_a_message_for_which_no_memory_is_left_ends_its_call(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the event loop or in a thread; the connection continues."""

    def inflate(body: bytes, encoding: bytes, **limits: int) -> Iterator[bytes]:
        yield from [b""] * steps
        raise MemoryError

    monkeypatch.setattr(decompression, "inflate", inflate)
    server = Server()
    peer = Peer(server)
    number = peer.call(None, more=[GZIP])
    peer.upload(number, gzipped(b"x"), ends=True)
    call = server.calls[0]
    await ended(call)
    peer.sync()

    assert len(call.events) == 1
    assert peer.answer(number).status == Code.INTERNAL
    assert "internal error" in peer.answer(number).text
    assert server.pool.used_bytes == 0
    assert peer.ask().messages == [b"hello"]


async def test_a_call_that_ends_while_a_message_is_inflated() -> None:
    server = Server()
    peer = Peer(server)
    call = echo(peer, gzipped(bytes(900_000)))
    peer.wire.leave()
    await until(lambda: not server.pool.used_bytes)
    assert call.events == ["cancelled"]


@pytest.mark.parametrize(
    ("data", "more", "code", "text"),
    [
        (message(b"x", flag=1), (), Code.INTERNAL, "is compressed, but the call has no grpc-encoding"),
        (message(b"x", flag=2), (), Code.INTERNAL, "the first byte of a message must be 0 or 1, got 2"),
        (message(b"no gzip" * 9, flag=1), (GZIP,), Code.INTERNAL, "cannot decompress"),
        (message(gzipped(b"x")[5:-3], flag=1), (GZIP,), Code.INTERNAL, "incomplete"),
        (message(b"", flag=1), (GZIP,), Code.INTERNAL, "incomplete"),
        (gzipped(bytes(1_000_001)), (GZIP,), Code.RESOURCE_EXHAUSTED, "exceeds the limit of 1000000 bytes"),
        (gzipped(bytes(20_000_000)), (GZIP,), Code.RESOURCE_EXHAUSTED, "exceeds the limit of 1000000 bytes"),
        (message(b"hello")[:-2], (), Code.INTERNAL, "after 3 of 5 bytes of a message"),
        (message(b"hello")[:3], (), Code.INTERNAL, "after 3 of 5 bytes of its prefix"),
        (message(b"hello")[:5], (), Code.INTERNAL, "after 0 of 5 bytes of a message"),
    ],
)
async def test_messages_that_cannot_be_read(
    data: bytes, more: tuple[tuple[bytes, bytes], ...], code: Code, text: str
) -> None:
    """The call ends with an error; the connection continues."""
    server = Server()
    peer = Peer(server)
    number = peer.call(None, more=more)
    peer.upload(number, data, ends=True)
    call = server.calls[0]
    await ended(call)
    peer.sync()

    assert len(call.events) == 1
    assert text in call.events[0]
    assert peer.answer(number).status == code
    assert server.pool.used_bytes == 0
    assert peer.ask().messages == [b"hello"]


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=6),
    st.lists(st.integers(0, 300), max_size=10),
)
def test_any_messages_cut_anywhere(messages: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    data = b"".join([gzipped(body) if packed else message(body) for body, packed in messages])
    ends = [*sorted(min(cut, len(data)) for cut in cuts), len(data)]

    async def received() -> list[bytes | str]:
        server = Server()
        peer = Peer(server)
        number = peer.call(None, path=b"/t.T/Hang", more=[GZIP])
        at = 0
        for end in ends:
            peer.wire.send(frames.frame(frames.DATA, 0, number, data[at:end]))
            at = end
        peer.h2.end_stream(number)
        peer.sync()
        assert server.pool.used_bytes == 0
        return server.calls[0].events

    assert run(received()) == [*(body for body, _ in messages), "end"]


ONE = b"/t.T/One"


async def test_the_only_message_stays_as_it_came_until_the_call_ends() -> None:
    """Otherwise, a call that never ends would keep a message thousands of times as large as what was sent."""
    server = Server()
    peer = Peer(server)
    sent = gzipped(bytes(900_000))
    number = peer.call(None, path=ONE, more=[GZIP])
    for cut in (3, 100, len(sent)):
        peer.upload(number, sent[peer_sent(server) : cut])
        assert server.calls[0].events == []
    assert server.pool.used_bytes == len(sent) - 5

    peer.h2.end_stream(number)
    peer.sync()
    await ended(server.calls[0])
    assert server.calls[0].events == [bytes(900_000), "end"]
    assert server.pool.used_bytes == 0


def peer_sent(server: Server) -> int:
    """How many bytes of DATA the server has of the first stream."""
    [connection] = server.listener._connections
    return connection.session.streams[1].received_bytes


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("body", [b"", b"hello", b"x" * 100_000])
@pytest.mark.parametrize("ends", ["with the message", "later"])
async def test_calls_that_take_one_message_get_it(packed: bool, body: bytes, ends: str) -> None:
    peer = Peer(Server())
    number = peer.call(None, path=ONE, more=[GZIP])
    data = gzipped(body) if packed else message(body)
    peer.upload(number, data, ends=ends == "with the message")
    if ends == "later":
        assert peer.server.calls[0].events == []
        peer.h2.end_stream(number)
        peer.sync()
    await ended(peer.server.calls[0])
    peer.sync()
    assert peer.server.calls[0].events == [body, "end"]
    assert peer.answer(number).messages == [body]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("bodies", "text"), [([], "got none"), ([b"1", b"2"], "got more"), ([b"", b""], "got more")]
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_calls_that_take_one_message_reject_any_other_number(
    packed: bool, bodies: list[bytes], text: str, at_once: bool
) -> None:
    peer = Peer(Server())
    number = peer.call(None, path=ONE, more=[GZIP])
    written = [gzipped(body) if packed else message(body) for body in bodies]
    for data in [b"".join(written)] if at_once else written:
        peer.upload(number, data)
    if not bodies:
        peer.h2.end_stream(number)
        peer.sync()
    assert peer.server.calls[0].events == [f"this method takes one message, {text}"]
    assert peer.answer(number).status == Code.INTERNAL
    assert peer.server.pool.used_bytes == 0


class SmallCall(EchoCall):
    max_message_bytes = 100


@pytest.mark.parametrize("path", [ONE, b"/t.T/Stream"])
@pytest.mark.parametrize("data", [message(bytes(101)), gzipped(bytes(101)), message(bytes(101))[:20]])
async def test_the_limit_of_a_method(path: bytes, data: bytes) -> None:
    peer = Peer(Server(make_call=SmallCall))
    number = peer.call(None, path=path, more=[GZIP])
    peer.upload(number, data, ends=len(data) > 20)
    await ended(peer.server.calls[0])
    peer.sync()
    assert peer.answer(number).status == Code.RESOURCE_EXHAUSTED
    assert "100 bytes" in peer.answer(number).text


async def test_messages_wait_while_the_call_is_paused() -> None:
    """They wait as they came: a window of compressed messages would be a thousand times as large."""
    server = Server()
    peer = Peer(server)
    number = peer.call(None, path=b"/t.T/Hang", more=[GZIP])
    call = server.calls[0]
    call.stream.pause()
    sent = message(b"1") + gzipped(bytes(900_000)) + message(b"3")
    peer.upload(number, sent[:6])
    peer.upload(number, sent[6:], ends=True)
    assert call.events == []
    assert server.pool.used_bytes == len(sent)

    call.stream.resume()
    await ended(call)
    assert call.events == [b"1", bytes(900_000), b"3", "end"]
    assert server.pool.used_bytes == 0


async def test_no_thread_inflates_while_the_pool_is_full() -> None:
    """What waits for a thread is already larger than what the client sent."""
    server = Server(pool_bytes=1000)
    peer = Peer(server)
    server.pool.used_bytes += 1001
    number = peer.call(None, path=ONE, more=[GZIP])
    peer.upload(number, gzipped(bytes(900_000)), ends=True)
    assert peer.answer(number).status == Code.UNAVAILABLE
    assert server.pool.used_bytes == 1001
    assert peer.ask().messages == [b"hello"]
