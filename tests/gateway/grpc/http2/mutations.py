"""Mutated input of a connection, decided by the given random generator only."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from hpack import Encoder

from tests.gateway.grpc.http2.peer import Server, Wire, gzipped, headers, message
from uncork_gateway.grpc.http2 import frames

_PATHS = (b"/t.T/Echo", b"/t.T/Stream", b"/t.T/Hang", b"/t.T/None")
_MORE = (
    (b"grpc-encoding", b"gzip"),
    (b"grpc-encoding", b"br"),
    (b"grpc-timeout", b"5S"),
    (b"grpc-timeout", b"never"),
    (b"content-length", b"7"),
    (b"x-bin", b"AAE="),
    (b"X-Upper", b"1"),
    (b"traceparent", b"00-1"),
)
_NUMBERS = (0, 1, 2, 10, 65_535, 2**31 - 1, 2**32 - 1)
_PIECES = (b"", b"\0", b"\xff", b"\x82", b"\x40\x01a\x01b", b"\x3f\xe1\x1f", b"\0" * 9, b"\xff" * 9)
_MAX_CALLS = 4
_MAX_CHANGES = 3


def stream_of_frames(random: Random) -> bytes:
    """Return what some client sends, mutated."""
    encoder = Encoder()
    sent = [frames.settings({random.randrange(8): random.choice(_NUMBERS)} if random.random() < 0.3 else {})]
    for place in range(random.randint(1, _MAX_CALLS)):
        sent += _call(2 * place + 1, encoder, random)
    return frames.PREFACE + changed_frames(sent, random)


def changed_frames(sent: list[bytes], random: Random) -> bytes:
    """Return what a client sends after the preface, with some frames and bytes changed."""
    if random.random() < 0.1:
        random.shuffle(sent)
    sent = [_changed_frame(each, random) if random.random() < 0.05 else each for each in sent]
    data = b"".join(sent)
    for _ in range(random.choice((0, 0, 1, _MAX_CHANGES))):
        data = _changed_bytes(data, random)
    return data


def _call(number: int, encoder: Encoder, random: Random) -> list[bytes]:
    more = random.sample(_MORE, random.choice((0, 0, 1, 2)))
    block = encoder.encode(headers(random.choice(_PATHS), *more), huffman=random.random() < 0.5)
    cut = random.randrange(len(block))
    whole = [frames.headers(number, block, ends=random.random() < 0.2)]
    pieces = [
        frames.frame(frames.HEADERS, 0, number, block[:cut]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, number, block[cut:]),
    ]
    body = random.randbytes(random.choice((0, 1, 50, 3000)))
    written = random.choice((message(body), gzipped(body), message(body, flag=random.randrange(256))))
    cut = random.randrange(len(written) + 1)
    return [
        *(whole if random.random() < 0.7 else pieces),
        frames.frame(frames.DATA, 0, number, written[:cut]),
        frames.frame(frames.DATA, frames.END_STREAM, number, written[cut:]),
        *random.sample(other_frames(number, random), random.choice((0, 0, 1, 2))),
    ]


def other_frames(number: int, random: Random) -> list[bytes]:
    """Return frames that belong to no call, or end the one of this number."""
    any_number = random.choice((0, number, number + 2, 2**31 - 1))
    return [
        frames.window_update(any_number, random.choice(_NUMBERS)),
        frames.reset(any_number, random.randrange(20)),
        frames.frame(frames.PING, random.randrange(2), 0, random.randbytes(8)),
        frames.settings({random.randrange(9): random.choice(_NUMBERS)}),
        frames.goaway(any_number, random.randrange(20), "x"),
        frames.frame(frames.PRIORITY, 0, any_number, random.randbytes(5)),
        frames.frame(random.randrange(256), random.randrange(256), any_number, random.randbytes(9)),
    ]


def _changed_frame(written: bytes, random: Random) -> bytes:
    """Change the head of a frame, or its payload with a length that fits."""
    _, _, kind, flags, number = frames.FRAME_HEAD.unpack_from(written)
    payload = written[frames.FRAME_HEAD_BYTES :]
    match random.randrange(5):
        case 0:
            kind = random.randrange(12)
        case 1:
            flags ^= 1 << random.randrange(8)
        case 2:
            number = random.choice((0, 1, 2, 3, 5, 2**32 - 1))
        case 3:
            payload = _changed_bytes(payload, random)
        case _:
            return written + written
    return frames.frame(kind, flags, number, payload)


def _changed_bytes(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((1, 1, 2, 9, 64)))
    return random.choice(
        (
            data[:start] + random.choice(_PIECES) + data[start:],
            data[:start] + random.randbytes(end - start) + data[end:],
            data[:start] + data[end:],
            data[:end] + data[start:],
            data[:start],
        )
    )


def outcome(sent: bytes, random: Random) -> str:
    """Send a stream in pieces to a new server, and let the client leave.

    Returns how it ended: open, the name of a GOAWAY's code, or HTTP/1.1.

    Raises:
        AssertionError: the server wrote no frames, kept memory, or a call was finished twice or never.
        Exception: anything that the connection raised.
    """
    server = Server()
    wire = Wire(server)
    cuts = sorted(random.randrange(len(sent) + 1) for _ in range(random.choice((0, 1, 5))))
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        wire.send(sent[start:end])
    end_ = "HTTP/1.1" if wire.received.startswith(b"HTTP/1.1") else _ending(wire)
    for call in server.calls[: random.randrange(3)]:
        call.stream.send(b"late")
        call.stream.reply(b"late", ())
    if wire.closed:
        wire.protocol.connection_lost(None)
    else:
        wire.leave()
    assert server.pool.used_bytes == 0
    assert server.listener.connections == 0
    assert all(call.events.count("cancelled") <= 1 for call in server.calls)
    return end_


def _ending(wire: Wire) -> str:
    codes = [code for code, _, _ in wire.goaways()]
    assert len(codes) <= 1
    assert wire.ended == bool(codes)
    return frames.ErrorCode(codes[0]).name if codes else "open"


async def outcomes(numbers: range, *, seed: int) -> Counter[str]:
    """Return how many of the streams with these numbers ended how; seed and number decide a stream."""
    found: Counter[str] = Counter()
    for number in numbers:
        random = Random(f"{seed} {number}")
        sent = stream_of_frames(random)
        try:
            found[outcome(sent, random)] += 1
        except Exception as error:
            error.add_note(f"stream {number} of seed {seed}: {sent!r}")
            raise
        if number % 100 == 0:
            await asyncio.sleep(0)
    return found
