"""Which call a path opens, and who may."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gateway.grpc.call_stage import INFER, PREDICT, STREAM_INFER, calls, numbers
from tests.gateway.grpc.fake_stream import FakeConnection, FakeObservers
from tests.gateway.running import turns
from uncork_gateway.auth import ApiKeys
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.statuses import CallFailed, Code

WATCH = b"/grpc.health.v1.Health/Watch"
LIVE = b"/inference.GRPCInferenceService/ServerLive"
REFLECTION = b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
METADATA = b"/inference.GRPCInferenceService/ServerMetadata"


async def test_unknown_methods_are_named(tmp_path: Path) -> None:
    async with calls(tmp_path) as stage:
        _, unknown = stage.ask(path=b"/some.Service/Method")
        _, left_out = stage.ask(path=b"/inference.GRPCInferenceService/TraceSetting")

        assert unknown.code is left_out.code is Code.UNIMPLEMENTED
        assert "/some.Service/Method" in unknown.text
        assert left_out.text != unknown.text


async def test_a_long_path_is_quoted_and_logged_in_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client can repeat it with one byte of HPACK."""
    async with calls(tmp_path) as stage:
        with caplog.at_level(logging.INFO, logger="uncork.access"):
            path = b"/" + b"a" * 4000
            _, unknown = stage.ask(
                path=path, connection=FakeConnection(observers=FakeObservers(access_log=True))
            )

        assert unknown.text == f"unknown method '/{'a' * 99}'"
        [line] = [record.getMessage() for record in caplog.records if record.name == "uncork.access"]
        assert line.split()[1] == "/" + "a" * 511


async def test_a_wrong_head_is_told(tmp_path: Path) -> None:
    async with calls(tmp_path) as stage:
        _, stream = stage.ask(numbers(1), rejection=BadRequest("grpc-timeout is wrong"))

        assert (stream.code, stream.text) == (Code.INVALID_ARGUMENT, "grpc-timeout is wrong")

        accepted = ((b"grpc-accept-encoding", b"identity"),)
        _, stream = stage.ask(numbers(1), rejection=CallFailed("encoding", Code.UNIMPLEMENTED, accepted))
        assert (stream.code, stream.trailers) == (Code.UNIMPLEMENTED, accepted)


async def test_keys_are_required_but_for_health(tmp_path: Path) -> None:
    async with calls(tmp_path, keys=ApiKeys([b"a-key-of-sixteen-characters"])) as stage:
        for path in (INFER, METADATA):
            _, stream = stage.ask(numbers(1), path=path)
            assert stream.code is Code.UNAUTHENTICATED
        _, live = stage.ask(b"", path=LIVE)
        assert live.code is Code.OK
        key = ((b"x-api-key", b"a-key-of-sixteen-characters"),)
        _, stream = stage.ask(b"", path=METADATA, metadata=key)
        assert stream.code is Code.OK


async def test_a_revoked_key_ends_the_calls_that_clients_keep_open(tmp_path: Path) -> None:
    """But neither requests that are accepted already, nor calls that need no key."""
    key, other = b"a-key-of-sixteen-characters", b"another-key-of-the-tests"
    async with calls(tmp_path, keys=ApiKeys([key, other])) as stage:
        opened = {
            (path, own): stage.open(path, metadata=((b"x-api-key", own),))
            for path in (STREAM_INFER, REFLECTION, WATCH)
            for own in (key, other)
        }
        _, asked = stage.ask(numbers(1), metadata=((b"x-api-key", key),))
        settings = stage.on.gateway.front_end.settings
        stage.on.gateway.change(replace(settings, max_body_bytes=1_000_000))
        assert {stream.code for _, stream in opened.values()} == {None}

        stage.on.gateway.change(replace(settings, keys=ApiKeys([other])))
        ended = {each: stream.code for each, (_, stream) in opened.items() if stream.code is not None}
        assert ended == {
            (STREAM_INFER, key): Code.UNAUTHENTICATED,
            (REFLECTION, key): Code.UNAUTHENTICATED,
        }
        await stage.answer(b"[1]")
        await turns(20)
        assert asked.code is Code.OK


@pytest.mark.parametrize(("ends", "code"), [(True, Code.OK), (False, Code.UNAUTHENTICATED)])
async def test_a_stream_whose_key_is_revoked_gets_the_responses_that_are_due(
    tmp_path: Path, ends: bool, code: Code
) -> None:
    key = b"a-key-of-sixteen-characters"
    async with calls(tmp_path, keys=ApiKeys([key])) as stage:
        call, stream = stage.open(STREAM_INFER, metadata=((b"x-api-key", key),))
        call.message_received(numbers(1))
        if ends:
            call.end_received()
        settings = stage.on.gateway.front_end.settings
        stage.on.gateway.change(replace(settings, keys=ApiKeys([b"another-key-of-the-tests"])))
        call.message_received(numbers(2))
        assert stream.code is None
        await stage.answer(b"[10]")
        assert await stream.next()
        await turns(20)
        assert stream.code is code


async def test_which_methods_take_one_message_and_how_large(tmp_path: Path) -> None:
    """A stream keeps what these calls have not taken yet; only requests for a batch may be large."""
    async with calls(tmp_path, max_body_bytes=1_000_000) as stage:
        for path in (INFER, PREDICT):
            call, _ = stage.open(path)
            assert (call.takes_one, call.max_message_bytes > 1_000_000) == (True, True)
        for path in (LIVE, METADATA, b"/grpc.health.v1.Health/Check"):
            call, _ = stage.open(path)
            assert (call.takes_one, call.max_message_bytes) == (True, 8192)
        for path in (b"/grpc.health.v1.Health/Watch", REFLECTION):
            call, _ = stage.open(path)
            assert (call.takes_one, call.max_message_bytes) == (False, 8192)


async def test_every_call_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = FakeConnection(observers=FakeObservers(access_log=True))
    async with calls(tmp_path) as stage:
        with caplog.at_level(logging.INFO, logger="uncork.access"):
            stage.ask(b"", path=LIVE, connection=connection)
            call, _ = stage.ask(path=b"/some.Service/Method", connection=connection)
            call.cancelled()
            waiting, _ = stage.open(LIVE, connection=connection)
            waiting.cancelled()
            waiting.end_received()
            # The requests of a stream have lines of their own.
            streaming, _ = stage.open(STREAM_INFER, connection=connection)
            streaming.cancelled()
            streaming.reject(BadRequest("too late"))

    lines = [record.getMessage() for record in caplog.records if record.name == "uncork.access"]
    assert [line.split()[1:3] for line in lines] == [
        [LIVE.decode(), "200"],
        ["/some.Service/Method", "501"],
        [LIVE.decode(), "499"],
    ]
    assert [line.split(", ")[2] for line in lines] == ["OK", "UNIMPLEMENTED", "CANCELLED"]
