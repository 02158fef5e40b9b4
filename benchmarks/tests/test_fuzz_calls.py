"""Mutated calls follow from the seed, and failures of a gRPC server are found."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from benchmarks.fuzz.call_mutations import mutated_call
from benchmarks.fuzz.call_seeds import CALL_EXAMPLES
from benchmarks.fuzz.calls import LOT, CallFuzzer
from benchmarks.fuzz.fuzzer import Found
from benchmarks.fuzz.seeds import CallSeed, Example
from benchmarks.harness.grpc_wire import GrpcWire
from benchmarks.tests.chaos.grpc_server import Answer, ScriptedCall, scripted
from tests.gateway.grpc.http2.peer import read_frames
from uncork_gateway.errors import BadRequest, GatewayError, HandlerFailed, Unavailable
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.session import Session
from uncork_gateway.grpc.messages import make
from uncork_gateway.grpc.statuses import CallFailed, Code

MESSAGE = make("inference.ModelReadyRequest", name="good")
SEED = CallSeed(b"/inference.GRPCInferenceService/ModelInfer", (MESSAGE,))
GOOD = MESSAGE.SerializeToString()
EXAMPLE = Example("scripted", (SEED,))
BAD = BadRequest("no")
FAILED = HandlerFailed("internal error; error id 1")


def wire() -> GrpcWire:
    """A client whose connection is not used."""
    nowhere: Any = object()
    return GrpcWire((nowhere, nowhere))


@pytest.mark.parametrize("name", CALL_EXAMPLES)
def test_mutations_are_valid_frames_of_many_kinds(name: str) -> None:
    random, example, client = Random(1), CALL_EXAMPLES[name](), wire()
    calls = [mutated_call(example.draw(random), random, client) for _ in range(500)]
    kinds = [[kind for kind, *_ in read_frames(b"".join(call.written))] for call in calls]

    assert len({b"".join(call.written[1:]) for call in calls}) > 350
    assert {kind for each in kinds for kind in each} == {frames.HEADERS, frames.DATA, frames.RST_STREAM}
    assert all(each[0] == frames.HEADERS for each in kinds)
    assert {call.path for call in calls} == {seed.path for seed in example.seeds}
    assert 50 < sum(call.has_odd_head for call in calls) < 250
    assert 300 < sum(call.ends for call in calls) < 500


def answering(other: Answer, *, good: Answer | None = None) -> Answer:
    """Answer the valid call rightly, or as given, and all others in another way."""

    def answer(call: ScriptedCall, body: bytes) -> None:
        if body != GOOD or call.head.timeout_s < 1e9 or call.head.metadata:
            other(call, body)
        elif good is None:
            call.reply(b"fine")
        else:
            good(call, body)

    return answer


def refuse(call: ScriptedCall, body: bytes) -> None:
    call.finish(BAD)


def fuzzed(answer: Answer) -> Found:
    async def run() -> Found:
        async with scripted(answer) as port:
            fuzzer = CallFuzzer("scripted", port, EXAMPLE, seed=1, tell=lambda doing: None)
            fuzzer.bound_s = 0.5
            await fuzzer.run(range(6 * LOT))
            return fuzzer.found

    return asyncio.run(run())


def test_a_server_that_refuses_what_is_wrong_has_no_faults() -> None:
    found = fuzzed(answering(refuse))

    assert found.faults == []
    assert sum(found.statuses.values()) == 6 * LOT
    assert {"OK", "INVALID_ARGUMENT", "reset"} <= found.statuses.keys()
    assert found.neighbours == 6


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (None, "no answer"),
        (FAILED, "an error of the gateway"),
        (CallFailed("oh", Code.INTERNAL), "a status without a cause"),
        (CallFailed("oh", Code.UNKNOWN), "a status without a cause"),
        (Unavailable("busy", reason="queue_full", retry_after_s=1), "a status without a cause"),
    ],
)
def test_a_server_that_fails_is_found_out(error: GatewayError | None, says: str) -> None:
    def other(call: ScriptedCall, body: bytes) -> None:
        if error is not None:
            call.finish(error)

    faults = fuzzed(answering(other)).faults

    assert any(says in fault for fault in faults)
    assert all("--grpc --first" in fault for fault in faults if "the valid call after" not in fault)


def test_errors_that_the_client_has_caused_may_be_internal() -> None:
    for text in ("this method takes one message, got none", "the handler of API 'x' failed; error id 1"):
        failed = CallFailed(text, Code.INTERNAL)
        assert fuzzed(answering(lambda call, body, failed=failed: call.finish(failed))).faults == []  # type: ignore[misc]


def test_a_valid_call_that_is_answered_otherwise_is_found_out() -> None:
    answers = iter([b"fine"])

    def change(call: ScriptedCall, body: bytes) -> None:
        call.reply(next(answers, b"other"))

    faults = fuzzed(answering(refuse, good=change)).faults

    assert any("the valid call after number" in fault for fault in faults)
    assert any("the valid call between them" in fault for fault in faults)


def test_a_connection_that_fails_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Session.block_received

    def fail(self: Session, number: int, block: bytes, *, ends: bool) -> None:
        if number > LOT:
            raise frames.protocol_error("no")
        begin(self, number, block, ends=ends)

    monkeypatch.setattr(Session, "block_received", fail)
    assert any("the connection ended" in fault for fault in fuzzed(answering(refuse)).faults)
