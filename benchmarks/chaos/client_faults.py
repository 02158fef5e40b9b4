"""Faults of clients: poison, early leavers, slow ones, malformed and oversized requests."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from benchmarks.chaos.faults import LEAVE, MALFORMED, OVERSIZED, POISON, SLOW, Fault
from benchmarks.chaos.load import Connection
from benchmarks.chaos.questions import Question, ask, post
from benchmarks.chaos.stage import MAX_BODY_BYTES, Stage
from benchmarks.chaos.streams import Stream, connected, read_reply
from uncork_loadtests.generator.http_reply import ReplyError
from uncork_loadtests.servers import HOST

_LEAVERS = 100
_LEAVE_IN_THE_MIDDLE = replace(LEAVE, own=frozenset({400}))
_LEFT_OPEN_S = 3.0
_DRIBBLES = 20
_PIPELINED, _LONG_PAD = 40, 40_000
_UNREAD_BYTES = 4096
_BOUND_S = 20.0
_QUIET_S = 0.5

_JSON = (
    b"", b"{", b"[1, 2", b'{"number": 1e999}', b'{"number": "one"}', b'{"number": 1, "act": "sing"}',
    b'{"pad": ""}', b"\xff\xfe{}", b"nul", b"[" * 5000, b'{"number": 1} {"number": 2}',
    b'{"number": 1, "x": 0}',
)  # fmt: skip
_POST = b"POST /predict HTTP/1.1\r\nHost: chaos\r\n"
_HTTP = (
    b"NONSENSE\r\n\r\n",
    b"POST /predict HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
    _POST + b"Content-Length: -1\r\n\r\n",
    _POST + b"Content-Length: many\r\n\r\n",
    _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    _POST + b"Bad Name: x\r\nContent-Length: 0\r\n\r\n",
    _POST + b"X-Zero: a\x00b\r\nContent-Length: 0\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
)


async def poison(stage: Stage, random: Random) -> None:
    """Rows that raise, within the ordinary load."""
    stage.ledger.injected(POISON)
    for _ in range(random.choice((1, 1, 1, 3))):
        stage.load.slip_in("raise", POISON)


async def leave(stage: Stage, random: Random) -> None:
    """Many clients send requests, some incomplete, and close at once or half-close."""
    stage.ledger.injected(LEAVE)
    loop = asyncio.get_running_loop()
    leavers = [Connection(stage.ledger) for _ in range(_LEAVERS)]
    for leaver in leavers:
        await loop.create_connection(lambda leaver=leaver: leaver, HOST, stage.gateway.port)  # type: ignore[misc]
    # On a starved machine, the gateway may have closed the first of them as idle.
    leavers = [leaver for leaver in leavers if leaver.usable]
    for leaver in leavers:
        if random.random() < 0.7:
            leaver.ask(_question(stage, random), own=LEAVE)
        else:
            leaver.ask(_question(stage, random), own=_LEAVE_IN_THE_MIDDLE, share=random.random())
    await asyncio.sleep(random.random() * 0.03)
    for leaver in leavers:
        random.choice((leaver.abort, leaver.close, leaver.half_close))()
    await asyncio.sleep(_LEFT_OPEN_S)
    for leaver in leavers:
        leaver.abort()


async def slow(stage: Stage, random: Random) -> None:
    """Clients that send byte by byte, stop in the middle, or do not read."""
    stage.ledger.injected(SLOW)
    await asyncio.gather(_dribble(stage, random), _stall(stage, random), _read_late(stage))


async def malformed(stage: Stage, random: Random) -> None:
    """Bytes that are not a request, or a request without a right answer."""
    stage.ledger.injected(MALFORMED)
    request = random.choice((*_HTTP, *(post("/predict", body) for body in _JSON)))
    await _expect_refusal(stage, request, MALFORMED)


async def oversized(stage: Stage, random: Random) -> None:
    """A body over the limit, by its stated length or by its chunks; it is refused before its end."""
    stage.ledger.injected(OVERSIZED)
    length = MAX_BODY_BYTES + random.randrange(1, MAX_BODY_BYTES)
    announced = _POST + b"Content-Length: %d\r\n" % length
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    chunks = chunk * (MAX_BODY_BYTES // 0x1000 + 1)
    request = random.choice(
        (
            announced + b"\r\n" + b"x" * 1000,
            announced + b"Expect: 100-continue\r\n\r\n",
            _POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        )
    )
    await _expect_refusal(stage, request, OVERSIZED)


async def _expect_refusal(stage: Stage, request: bytes, fault: Fault) -> None:
    """Send bytes without a right answer; nothing may follow the refusal."""
    question = Question(next(stage.numbers), request)
    async with _asking(stage, [question], fault) as (reader, writer):
        writer.write(request)
        await _read_answer(stage, question, reader)
        rest = b""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_QUIET_S):
                rest = await reader.read(200)
        if rest:
            stage.ledger.garble(question.number, f"extra bytes after the answer: {rest!r}")


async def _dribble(stage: Stage, random: Random) -> None:
    question = _question(stage, random)
    cuts = sorted(random.randrange(len(question.request)) for _ in range(_DRIBBLES))
    async with _asking(stage, [question], SLOW) as (reader, writer):
        for start, end in zip([0, *cuts], [*cuts, len(question.request)], strict=True):
            if writer.is_closing():  # the gateway was killed
                break
            writer.write(question.request[start:end])
            await asyncio.sleep(random.random() * 0.1)
        await _read_answer(stage, question, reader)


async def _stall(stage: Stage, random: Random) -> None:
    """Send part of a request, which therefore is not in the ledger."""
    part = _question(stage, random).request
    async with connected(stage.gateway.port) as (_, writer):
        writer.write(part[: random.randrange(len(part))])
        await asyncio.sleep(_LEFT_OPEN_S)


async def _read_late(stage: Stage) -> None:
    questions = [ask(next(stage.numbers), pad="y" * _LONG_PAD) for _ in range(_PIPELINED)]
    async with _asking(stage, questions, SLOW, receive_bytes=_UNREAD_BYTES) as (reader, writer):
        for question in questions:
            writer.write(question.request)
        await asyncio.sleep(_LEFT_OPEN_S)
        for question in questions:
            await _read_answer(stage, question, reader)
            stage.ledger.restart(questions, time.monotonic())


@asynccontextmanager
async def _asking(
    stage: Stage, questions: list[Question], fault: Fault, *, receive_bytes: int | None = None
) -> AsyncIterator[Stream]:
    """Open a connection for requests; those without an answer at the end of the block are lost."""
    async with connected(stage.gateway.port, receive_bytes=receive_bytes) as stream:
        for question in questions:
            stage.ledger.send(question, time.monotonic(), own=fault)
        try:
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(_BOUND_S * len(questions)):
                    yield stream
        finally:
            for question in questions:
                stage.ledger.close(
                    question.number, time.monotonic(), how=f"no answer to {question.request[:300]!r}"
                )


async def _read_answer(stage: Stage, question: Question, reader: asyncio.StreamReader) -> None:
    try:
        reply = await read_reply(reader)
    except (ReplyError, asyncio.LimitOverrunError) as error:
        stage.ledger.garble(question.number, f"{error} to {question.request[:300]!r}")
        return
    if reply is None:
        how = f"closed without an answer to {question.request[:300]!r}"
        stage.ledger.close(question.number, time.monotonic(), how=how)
    else:
        stage.ledger.answer(question.number, reply, time.monotonic())


def _question(stage: Stage, random: Random) -> Question:
    return ask(next(stage.numbers), pad="z" * random.randrange(2000))
