"""Compressed bodies: correct results, and errors before they take memory."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.client import JSON, Connection, request
from tests.gateway.proxy_stage import V1, V2, infer, merging, predictions, rows_body
from tests.gateway.running import turns
from tests.gateway.stage import LIMIT_BYTES, Stage, detail
from uncork_gateway.connection import decompression
from uncork_gateway.connection.decompression import inflate as inflate_steps
from uncork_gateway.errors import BadRequest, BodyTooLarge
from uncork_gateway.requests import request as requests


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's header, as some clients send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[bytes, list[Callable[[bytes], bytes]]] = {
    b"gzip": [gzip.compress],
    b"x-gzip": [gzip.compress],
    b"deflate": [zlib.compress, raw_deflate],
}
# The names of tests contain it, and must not change with the time of day.
ABC = gzip.compress(b"abc", mtime=0)
EACH = [(encoding, pack) for encoding, packs in PACKERS.items() for pack in packs]


def inflate(body: bytes, encoding: bytes = b"gzip", *, max_bytes: int = 10**6) -> bytes:
    return b"".join(inflate_steps(body, encoding, max_bytes=max_bytes, step_bytes=10**9))


@pytest.mark.parametrize(("encoding", "pack"), EACH)
@at_most(50)
@example(data=bytes(16) + b"\1", times=419, step=1)  # zlib has output left after the last byte of input
@given(st.binary(max_size=200), st.integers(1, 500), st.integers(1, 50))
def test_what_was_compressed_comes_out(
    encoding: bytes, pack: Callable[[bytes], bytes], data: bytes, times: int, step: int
) -> None:
    data *= times
    pieces = list(inflate_steps(pack(data), encoding, max_bytes=len(data), step_bytes=step * 1000))

    assert b"".join(pieces) == data
    assert all(len(piece) <= step * 1000 for piece in pieces)


@given(st.sampled_from(EACH), st.binary(max_size=60), st.data())
def test_any_other_bytes_are_refused_or_inflated(
    how: tuple[bytes, Callable[[bytes], bytes]], data: bytes, draw: st.DataObject
) -> None:
    """Truncated, changed and random bytes raise no other error and never exceed the limit."""
    encoding, pack = how
    body = bytearray(pack(data))
    for _ in range(draw.draw(st.integers(0, 3))):
        at = draw.draw(st.integers(0, max(0, len(body) - 1)))
        body[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    try:
        inflated = inflate(bytes(body), encoding, max_bytes=80)
    except (BadRequest, BodyTooLarge):
        return
    assert len(inflated) <= 80


def test_members_are_put_together() -> None:
    """``cat a.gz b.gz`` and parallel compressors write several members; some may be empty."""
    assert (
        inflate(gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(b"b" * 70_000))
        == b"a" + b"b" * 70_000
    )


@pytest.mark.parametrize(
    ("encoding", "body", "why"),
    [
        (b"gzip", b"", "incomplete"),
        (b"gzip", ABC[:-1], "incomplete"),
        (b"gzip", b"abc", "cannot decompress the body"),
        (b"gzip", ABC + b"x", "incomplete|cannot decompress"),
        (b"gzip", ABC + b"garbage", "cannot decompress the body"),
        (b"gzip", ABC[:-8] + b"\0" * 8, "cannot decompress the body"),
        (b"gzip", gzip.compress(b"", mtime=0) * 10_001, "members"),
        (b"deflate", zlib.compress(b"abc") + b"x", "followed"),
        (b"deflate", zlib.compress(b"abc") * 2, "followed"),
        (b"deflate", zlib.compress(b"abc")[:-1], "incomplete"),
        (b"deflate", b"\xff\xff", "cannot decompress the body"),
    ],
)
def test_what_is_wrong_is_told(encoding: bytes, body: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        inflate(body, encoding)


class Inflater:
    """One of zlib that notes how much each call inflates."""

    sizes: ClassVar[list[int]] = []

    def __init__(self, wbits: int) -> None:
        self._inflater = zlib.decompressobj(wbits)

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        inflated = self._inflater.decompress(data, max_length)
        self.sizes.append(len(inflated))
        return inflated

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inflater, name)


def test_a_bomb_takes_no_more_memory_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty million zeros in 20 kB."""
    monkeypatch.setattr(decompression, "zlib", SimpleNamespace(decompressobj=Inflater, error=zlib.error))
    monkeypatch.setattr(Inflater, "sizes", [])
    bomb = gzip.compress(bytes(20_000_000))
    with pytest.raises(BodyTooLarge, match="limit of 1000000 bytes"):
        inflate(bomb, max_bytes=1_000_000)
    assert sum(Inflater.sizes) == 1_000_001


@pytest.mark.parametrize(("megabytes", "is_refused"), [(8, False), (9, True)])
def test_a_large_body_is_no_more_than_a_hundred_times_its_compressed_size(
    megabytes: int, is_refused: bool
) -> None:
    """Zeros are compressed a thousandfold; a small body may be anything."""
    data = bytes(megabytes * 2**20)
    if is_refused:
        with pytest.raises(
            BodyTooLarge, match="exceeds 8388608 bytes, 100 times its compressed size; send it "
        ):
            inflate(gzip.compress(data), max_bytes=2**30)
    else:
        assert inflate(gzip.compress(data), max_bytes=2**30) == data


# In requests


def encoded(encoding: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a compressed JSON body."""
    return [JSON, (b"Content-Encoding", encoding)]


@pytest.mark.parametrize(("encoding", "pack"), [*EACH, (b"GZIP", gzip.compress), (b"identity", bytes)])
@pytest.mark.parametrize("pieces", [1, 3])
async def test_an_api_gets_the_inflated_body(
    encoding: bytes, pack: Callable[[bytes], bytes], pieces: int
) -> None:
    """In one piece or several; the second time the head is known."""
    stage = Stage()
    connection = Connection(stage.server)
    whole = request(pack(b'{"a": 1}'), headers=encoded(encoding))
    for _ in range(2):
        for at in range(pieces):
            connection.send(whole[at * len(whole) // pieces : (at + 1) * len(whole) // pieces])
        await turns()

    assert [reply.body for reply in connection.replies()] == [b'{"a": 1}'] * 2


@pytest.mark.parametrize(
    ("encoding", "body", "status", "why"),
    [
        (b"gzip", b"no", 400, "cannot decompress the body"),
        (
            b"gzip",
            gzip.compress(b"1" * (LIMIT_BYTES + 1), mtime=0),
            413,
            "decompressed body exceeds the limit of 100 bytes",
        ),
        (b"br", b"1", 415, "'br' is not supported; send gzip, deflate or none"),
        (b"gzip, deflate", b"1", 415, "'gzip, deflate' is not supported"),
        (b'"\xff', b"1", 415, "not supported"),
    ],
)
async def test_what_cannot_be_inflated_is_refused(
    encoding: bytes, body: bytes, status: int, why: str
) -> None:
    stage = Stage()
    refused, answered = Connection(stage.server), Connection(stage.server)
    refused.send(request(body, headers=encoded(encoding)))
    answered.send(request(b"1"))
    await turns()

    [reply] = refused.replies()
    assert why in detail(reply, status)
    assert reply.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)
    assert [reply.status for reply in answered.replies()] == [200]


# Several steps: of output, and of members, which also take time if they are empty.
SLOW = [
    gzip.compress(b'"%b"' % (b"a" * 50), mtime=0),
    gzip.compress(b"", mtime=0) * 3 + gzip.compress(b"1", mtime=0),
]


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("body", SLOW)
async def test_large_bodies_are_inflated_beside_the_loop(
    body: bytes, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They occupy the pool until then; nothing is executed for a client that has disconnected."""
    monkeypatch.setattr(decompression, "_STEP_BYTES", 10)
    monkeypatch.setattr(requests, "STEPS_AT_ONCE", 2)

    stage = Stage()
    connection = Connection(stage.server)
    connection.send(request(body, headers=encoded(b"gzip")))
    pool = stage.server.listener.pool
    assert pool.used_bytes > 0
    if leaves:
        connection.leave()
    while pool.used_bytes or not (connection.received or leaves):
        await turns()
    await turns()

    assert len(stage.runner.jobs) == (not leaves)
    assert [reply.status for reply in connection.replies()] == [200] * (not leaves)


async def test_a_large_broken_body_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "_STEP_BYTES", 10)
    monkeypatch.setattr(requests, "STEPS_AT_ONCE", 2)

    stage = Stage()
    connection = Connection(stage.server)
    connection.send(request(gzip.compress(b"1" * 90) + b"garbage", headers=encoded(b"gzip")))
    while not connection.received:
        await turns()

    [reply] = connection.replies()
    assert "cannot decompress the body" in detail(reply, 400)


async def test_the_proxy_merges_inflated_bodies() -> None:
    """They share calls with plain ones; servers need not support compression, not even for one request."""
    async with merging() as (on, model):
        packed = gzip.compress(rows_body(1))
        callers = [on.ask(packed, V1, (b"content-encoding", b"gzip")), on.ask(rows_body(2))]
        assert [predictions(reply) for reply in await on.replies(callers)] == [[2], [4]]
        alone = on.ask(packed, V1, (b"content-encoding", b"gzip"))
        assert predictions(await alone.reply()) == [2]

        assert [json.loads(call.body)["instances"] for call in model.calls] == [[1, 2], [1]]
        assert not any(call.header(b"content-encoding") for call in model.calls)


async def test_the_proxy_passes_on_inflated_what_it_cannot_merge() -> None:
    """The proxy reads bodies to merge them; only unknown encodings are relayed unchanged."""
    body = infer(1, parameters={"sequence_id": 1})

    async with merging(lambda call: Answer(b"{}")) as (on, model):
        for encoding, packed in ((b"gzip", gzip.compress(body)), (b"br", b"\x0b\x02\x80")):
            reply = await on.ask(packed, V2, (b"content-encoding", encoding)).reply()
            assert (reply.status, "x-batch-id" in reply.headers) == (200, False)

        sent = [(call.body, call.header(b"content-encoding")) for call in model.calls]
        assert sent == [(body, None), (b"\x0b\x02\x80", b"br")]


async def test_the_limit_of_the_proxy_holds_for_the_inflated_body() -> None:
    body = rows_body(*[1] * 1000)

    for limit, status in ((len(body), 200), (len(body) - 1, 413)):
        async with merging(max_body_bytes=limit) as (on, model):
            reply = await on.ask(gzip.compress(body), V1, (b"content-encoding", b"gzip")).reply()
            assert (reply.status, bool(model.calls)) == (status, status == 200)
