"""Faults of gRPC clients: cancellation, short deadlines, windows that stay shut, broken frames."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from benchmarks.chaos.faults import CANCEL, FRAMES, SHUT, TIMEOUT, Fault
from benchmarks.chaos.grpc.calls import INFER, PATHS, PREDICT, call, reply_of
from benchmarks.chaos.questions import Question
from benchmarks.chaos.stage import MAX_BODY_BYTES, Stage
from benchmarks.chaos.streams import connected
from benchmarks.harness.grpc_wire import (
    Answer,
    GrpcWire,
    Header,
    WireFault,
    call_fields,
    listening,
    prefixed,
)
from uncork_gateway.grpc.http2 import frames

_LEFT_CONNECTIONS, _LEFT_CALLS = 5, 10
_STAYS_S = 0.05
_TIMEOUTS = (b"1n", b"1m", b"10m", b"30m", b"100m", b"300m")
_TIMED_CALLS = 30
_SHUT_S = 3.0
_LONG_PAD = 15_000
_READ_CALLS, _TOO_MANY_CALLS = 3, 30
"""Unread answers that fit into the limit of the gateway, and those that do not."""
_UNREAD_BYTES = 4096
_BOUND_S = 20.0
_LEAVE_IN_THE_MIDDLE = replace(CANCEL, own=frozenset({400}))
_CALM = replace(SHUT, may_close=True)
_BAD_MESSAGE = replace(FRAMES, own=frozenset({400}), may_close=False)
_LARGE_MESSAGE = replace(FRAMES, own=frozenset({413}), may_close=False)

_BROKEN = (
    frames.frame(frames.SETTINGS, 0, 1),
    frames.frame(frames.SETTINGS, 0, 0, b"\0\x04\xff\xff\xff\xff"),
    frames.frame(frames.HEADERS, frames.END_HEADERS, 2, b"\x82"),
    frames.frame(frames.HEADERS, frames.END_HEADERS, 2**31 - 1, b"\xff\xff\xff\xff"),
    frames.frame(frames.HEADERS, 0, 2**31 - 1, b"\x82") + frames.frame(frames.PING, 0, 0, bytes(8)),
    frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"\x82"),
    frames.frame(frames.DATA, 0, 2**31 - 1, b"x"),
    frames.frame(frames.DATA, frames.PADDED, 0, b"\xff"),
    frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)),
    frames.frame(frames.PING, 0, 0, b"short"),
    frames.frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)),
    frames.frame(frames.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    frames.frame(frames.RST_STREAM, 0, 2**31 - 1, bytes(4)),
    b"\xff\xff\xff\0\0\0\0\0\0",
    frames.PREFACE,
)
"""Bytes that end the connection."""


async def cancel(stage: Stage, random: Random) -> None:
    """Clients cancel their calls or close their connections without waiting for the answers."""
    stage.ledger.injected(CANCEL)
    await asyncio.gather(*[_leave(stage, random) for _ in range(_LEFT_CONNECTIONS)])


async def timeout(stage: Stage, random: Random) -> None:
    """Clients send calls with a deadline and leave it to the gateway to end them in time."""
    stage.ledger.injected(TIMEOUT)
    questions = [_question(stage, random) for _ in range(_TIMED_CALLS)]
    timeouts = [[(b"grpc-timeout", random.choice(_TIMEOUTS))] for _ in questions]
    async with _asking(stage, questions, TIMEOUT, more=timeouts):
        pass


async def shut(stage: Stage, random: Random) -> None:
    """Clients read late: a few answers must still arrive; of too many, some calls may be reset."""
    stage.ledger.injected(SHUT)
    await asyncio.gather(
        _read_late(stage, _READ_CALLS, SHUT, window_bytes=0),
        _read_late(stage, _TOO_MANY_CALLS, _CALM, window_bytes=0),
        _read_late(stage, _TOO_MANY_CALLS, _CALM, receive_bytes=_UNREAD_BYTES),
    )


async def broken_frames(stage: Stage, random: Random) -> None:
    """Broken messages end their calls, broken frames the connection and with it all its calls."""
    stage.ledger.injected(FRAMES)
    bad, large, good = (_question(stage, random) for _ in range(3))
    bad = bad._replace(request=b"\x0a\xff" + bad.request, expected=())
    large = large._replace(request=large.request + bytes(MAX_BODY_BYTES), expected=())
    for question, fault in ((bad, _BAD_MESSAGE), (large, _LARGE_MESSAGE)):
        async with _asking(stage, [question], fault):
            pass
    async with _asking(stage, [good], FRAMES) as (wire, _):
        wire.write(random.choice(_BROKEN))
        if not await _within_bound(wire.closed) or wire.goaway is None:
            stage.ledger.complain(FRAMES.name, f"broken frames do not end the connection: {wire.goaway}")


async def _leave(stage: Stage, random: Random) -> None:
    questions = [_question(stage, random) for _ in range(_LEFT_CALLS)]
    async with connected(stage.gateway.grpc_port) as streams, listening(GrpcWire(streams)) as wire:
        numbers = [_send(wire, stage, question, CANCEL) for question in questions]
        await asyncio.sleep(random.random() * _STAYS_S)
        match random.randrange(4):
            case 0:
                wire.half_close()
            case 1:
                # Further frames of the client are the rest of its message, which then is wrong.
                last = _question(stage, random)
                share = random.random()
                numbers.append(_send(wire, stage, last, _LEAVE_IN_THE_MIDDLE, share=share))
                questions.append(last)
            case _:
                for number in random.sample(numbers, random.randint(1, len(numbers))):
                    wire.write(frames.reset(number, frames.ErrorCode.CANCEL))
        await asyncio.sleep(random.random() * _STAYS_S)
        for question, number in zip(questions, numbers, strict=True):
            _enter(stage, question, wire.answers[number])
            stage.ledger.leave(question.number)


async def _read_late(
    stage: Stage,
    count: int,
    fault: Fault,
    *,
    window_bytes: int = frames.MAX_WINDOW_BYTES,
    receive_bytes: int | None = None,
) -> None:
    questions = [call(next(stage.numbers), INFER, pads=["y" * _LONG_PAD]) for _ in range(count)]
    async with _asking(stage, questions, fault, window_bytes=window_bytes, receive_bytes=receive_bytes) as (
        wire,
        numbers,
    ):
        if window_bytes:
            wire.pause()
        await asyncio.sleep(_SHUT_S)
        wire.resume()
        for number in [] if window_bytes else numbers:
            wire.write(frames.window_update(number, MAX_BODY_BYTES))


@asynccontextmanager
async def _asking(
    stage: Stage,
    questions: Sequence[Question],
    fault: Fault,
    *,
    window_bytes: int = frames.MAX_WINDOW_BYTES,
    receive_bytes: int | None = None,
    more: Sequence[Sequence[Header]] = (),
) -> AsyncIterator[tuple[GrpcWire, list[int]]]:
    """Send calls on a connection, and yield it and their streams; wait for the answers after the block.

    ``more`` is metadata of each call.
    """
    async with (
        connected(stage.gateway.grpc_port, receive_bytes=receive_bytes) as streams,
        listening(GrpcWire(streams, window_bytes=window_bytes)) as wire,
    ):
        fields = more or [()] * len(questions)
        numbers = [
            _send(wire, stage, question, fault, more=each)
            for question, each in zip(questions, fields, strict=True)
        ]
        yield wire, numbers
        await _within_bound(*[wire.answers[number].ended for number in numbers])
        for question, number in zip(questions, numbers, strict=True):
            _enter(stage, question, wire.answers[number])
            answer = wire.answers[number]
            how = f"no answer: reset {answer.reset}, GOAWAY {wire.goaway}, {wire.fault or 'no fault'}"
            stage.ledger.close(question.number, time.monotonic(), how=how)
        if wire.fault:
            stage.ledger.complain(fault.name, f"the gateway has sent what is not gRPC: {wire.fault}")


def _send(
    wire: GrpcWire,
    stage: Stage,
    question: Question,
    fault: Fault,
    *,
    more: Sequence[Header] = (),
    share: float = 1.0,
) -> int:
    """Send a call, or its head and the first part of its message; returns the stream."""
    stage.ledger.send(question, time.monotonic(), own=fault)
    number, head = wire.head(call_fields(PATHS[question.kind].encode(), *more))
    message = b"".join(frames.data_frames(number, prefixed(question.request)))
    message += frames.frame(frames.DATA, frames.END_STREAM, number)
    wire.write(head + message[: int(len(message) * share)])
    return number


def _enter(stage: Stage, question: Question, answer: Answer) -> None:
    """Enter an answer that has come."""
    if answer.status is None:
        return
    trailers = {name.decode(): value.decode() for name, value in {**answer.head, **answer.trailers}.items()}
    try:
        body = b"".join(answer.messages)
    except WireFault as fault:
        stage.ledger.garble(question.number, str(fault))
        return
    stage.ledger.answer(
        question.number, reply_of(answer.status, answer.text, body, trailers), time.monotonic()
    )


async def _within_bound(*events: asyncio.Event) -> bool:
    """Wait until all events have come; return False if they do not come in time."""
    try:
        async with asyncio.timeout(_BOUND_S):
            for event in events:
                await event.wait()
    except TimeoutError:
        return False
    return True


def _question(stage: Stage, random: Random) -> Question:
    return call(next(stage.numbers), random.choice((INFER, PREDICT)), pads=["z" * random.randrange(2000)])
