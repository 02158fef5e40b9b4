"""gRPC clients of a chaos run: well-behaved ones and those that are faults."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

import pytest

from benchmarks.chaos.faults import CANCEL, FRAMES, SHUT, TIMEOUT, Fault
from benchmarks.chaos.gateway import Gateway
from benchmarks.chaos.grpc import call_faults
from benchmarks.chaos.grpc.calls import INFER, PREDICT, STREAM_INFER, call, reply_in_stream, reply_of
from benchmarks.chaos.grpc.channels import Channels
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.load import Load
from benchmarks.chaos.stage import Injector, Stage
from benchmarks.chaos.waiting import comes_true
from benchmarks.tests.chaos.grpc_server import Answer, ScriptedCall, answer_rightly, right, scripted
from tests.loops import HANG_S
from uncork_dispatcher import BatchTimedOut, RequestShed, WorkerLost
from uncork_gateway.errors import BadRequest, GatewayError, HandlerFailed, from_dispatcher
from uncork_gateway.grpc import infer_stream
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.statuses import Code, code_of, trailers_of

ERRORS: list[tuple[GatewayError, int]] = [
    (BadRequest("no"), 400),
    (HandlerFailed("the handler of API 'predict' failed; error id 1"), 500),
    (from_dispatcher(WorkerLost(), executor="worker"), 502),
    (from_dispatcher(RequestShed(reason="queue_full", retry_after_s=1.5), executor="worker"), 503),
    (from_dispatcher(RequestShed(reason="deadline", retry_after_s=1.5), executor="worker"), 503),
    (from_dispatcher(RequestShed(reason="no_worker", retry_after_s=1.5), executor="worker"), 503),
    (from_dispatcher(RequestShed(reason="draining", retry_after_s=1.5), executor="worker"), 503),
    (from_dispatcher(BatchTimedOut(), executor="worker"), 504),
]


@pytest.mark.parametrize("kind", [INFER, PREDICT, STREAM_INFER])
def test_right_answers_are_recognised(kind: str) -> None:
    question, other = (call(number, kind, pads=["a", "b"]) for number in (1, 2))
    answers = [right(kind, each.request) for each in (question, other)]
    if kind == STREAM_INFER:
        answers = [infer_stream.of_answer(each) for each in answers]

    assert question.is_answered_by(answers[0])
    assert not question.is_answered_by(answers[1])
    assert not question.is_answered_by(b"")
    assert not question.is_answered_by(b"\xff")
    assert not question._replace(expected=()).is_answered_by(answers[0])


@pytest.mark.parametrize(("error", "status"), ERRORS)
def test_errors_count_as_over_http(error: GatewayError, status: int) -> None:
    trailers = {name.decode(): value.decode() for name, value in trailers_of(error)}
    unary = reply_of(code_of(error), str(error), b"", trailers)
    streamed = reply_in_stream(infer_stream.of_error(str(error), request_id="1"))

    assert (unary.status, streamed.status) == (status, status)
    assert unary.body == str(error).encode()
    assert unary.retry_after_s == (2 if status == 503 else None)


def stage_of(port: int, ledger: Ledger) -> Stage:
    numbers = count(1)
    gateway = Gateway.__new__(Gateway)
    gateway.grpc_port = port
    load = Load(ledger, port=port, rate=1, seed=1, numbers=numbers)
    return Stage(gateway=gateway, ledger=ledger, load=load, numbers=numbers)


def never(call: ScriptedCall, body: bytes) -> None:
    """Leave a message without an answer."""


def end(call: ScriptedCall, body: bytes) -> None:
    call.stream.finish(Code.OK)


def garble(call: ScriptedCall, body: bytes) -> None:
    try:
        call.reply(right(call.kind, body)[:-1])
    except BadRequest:
        call.finish(HandlerFailed("no"))


def fail(call: ScriptedCall, body: bytes) -> None:
    call.finish(HandlerFailed("internal error; error id 1"))


def drop(call: ScriptedCall, body: bytes) -> None:
    session: Any = call.stream.connection
    asyncio.get_running_loop().call_soon(session.fail, frames.protocol_error("no"))


async def asked(answer: Answer, *, outstanding: int = 0) -> Ledger:
    arrived: list[ScriptedCall] = []

    def counted(call: ScriptedCall, body: bytes) -> None:
        arrived.append(call)
        answer(call, body)

    ledger = Ledger(timeout_s=HANG_S)
    async with scripted(counted) as port:
        channels = Channels(ledger, port=port, seed=1)
        numbers = count(1)
        for kinds in ([INFER], [PREDICT], [STREAM_INFER] * 3):
            channels.ask([(call(next(numbers), kind, pads=["a"]), None) for kind in kinds])
        await comes_true(lambda: ledger.outstanding <= min(outstanding, len(arrived)))
        await channels.close()
    return ledger


async def test_channels_get_right_answers() -> None:
    ledger = await asked(answer_rightly)

    assert (ledger.findings, ledger.statuses) == ([], {200: 5})
    assert ledger.kinds == {INFER: 1, PREDICT: 1, STREAM_INFER: 3}


@pytest.mark.parametrize(("answer", "left"), [(never, 2), (end, 0), (garble, 0), (fail, 0), (drop, 0)])
async def test_channels_notice_all_others(answer: Answer, left: int) -> None:
    ledger = await asked(answer, outstanding=5 if answer is never else 0)

    assert (ledger.left, ledger.lost + ledger.wrong) == (left, 5 - left)
    assert len(ledger.findings) == 5 - left


FAULTS: list[tuple[Injector, Fault]] = [
    (call_faults.cancel, CANCEL),
    (call_faults.timeout, TIMEOUT),
    (call_faults.shut, SHUT),
    (call_faults.broken_frames, FRAMES),
]


async def struck(injector: Injector, answer: Answer, *, seed: int = 1) -> Ledger:
    ledger = Ledger(timeout_s=2.0)
    async with scripted(answer) as port:
        await injector(stage_of(port, ledger), Random(seed))
    assert ledger.outstanding == 0
    return ledger


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_faults, "_SHUT_S", 0.1)
    monkeypatch.setattr(call_faults, "_BOUND_S", 0.2)


@pytest.mark.parametrize(("injector", "fault"), FAULTS)
async def test_faults_of_clients_lose_nothing(injector: Injector, fault: Fault) -> None:
    for seed in range(4):
        ledger = await struck(injector, answer_rightly, seed=seed)
        assert ledger.findings == []
        assert ledger.tallies[fault.name].injected == 1
        assert ledger.sent == ledger.left + sum(ledger.statuses.values())


@pytest.mark.parametrize(("injector", "fault"), FAULTS[1:])
@pytest.mark.parametrize("answer", [never, garble])
async def test_faults_of_clients_find_a_bad_server(injector: Injector, fault: Fault, answer: Answer) -> None:
    ledger = await struck(injector, answer)

    assert ledger.findings
    assert all(fault.name in finding.fault for finding in ledger.findings)
