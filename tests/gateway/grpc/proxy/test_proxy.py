"""The whole proxy for gRPC servers: what merges, what passes through, and who gets which answer."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.gateway.grpc.fake_stream import opened
from tests.gateway.grpc.proxy.fake_grpc_server import Call, Reply, fake_grpc_server, ok
from tests.gateway.grpc.proxy.models import (
    BAD,
    INFER,
    PREDICT,
    answer_id,
    doubles,
    infer,
    inferred,
    predict,
    predicted,
    rows_of,
    values_of,
)
from tests.gateway.grpc.proxy.proxy_stage import TOGETHER, Answer, grpc_proxy, merging, sizes
from tests.gateway.running import turns
from tests.loops import HANG_S, until
from uncork_gateway.auth import ApiKeys
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings

KEY = "a-key-of-enough-characters"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
NAMED = message("grpc.health.v1.HealthCheckRequest")(service="m").SerializeToString()


def succeeded(answer: Answer) -> list[float]:
    assert answer.code == Code.OK, answer
    return inferred(answer.message)


async def test_calls_at_the_same_time_are_one_call() -> None:
    """Each client gets its own rows, under its own id, and learns of the batch."""
    async with merging(max_batch_rows=6, **TOGETHER) as (on, fake):
        answers = await on.calls(
            infer(1, request_id="a"), infer(2, 3, request_id="b"), infer(4, 5, 6, request_id="c")
        )

        assert [succeeded(answer) for answer in answers] == [[2], [4, 6], [8, 10, 12]]
        assert [answer_id(answer.message) for answer in answers] == ["a", "b", "c"]
        assert sizes(fake) == [6]
        assert len({answer.batch for answer in answers}) == 1
        assert answers[0].batch[1] == 6
        assert "queue;dur=" in answers[0].trailers["server-timing"]
        assert on.requests("m", 200) == 3


async def test_predict_merges_too() -> None:
    async with merging(max_batch_rows=3, **TOGETHER) as (on, fake):
        answers = await on.calls(predict(1), predict(2, 3), path=PREDICT)
        assert [predicted(answer.message) for answer in answers] == [[2], [4, 6]]
        assert [(call.path, rows_of(call)) for call in fake.calls] == [(PREDICT, 3)]


async def test_a_large_request_is_cut_and_put_together() -> None:
    async with merging(max_batch_rows=2) as (on, fake):
        answer = await on.call(infer(1, 2, 3, 4, 5, request_id="large"))
        assert (succeeded(answer), answer_id(answer.message)) == ([2, 4, 6, 8, 10], "large")
        assert sorted(sizes(fake)) == [1, 2, 2]


async def test_one_bad_row_fails_alone() -> None:
    """With the code and the text of the server."""
    async with merging(max_batch_rows=4, **TOGETHER) as (on, fake):
        answers = await on.calls(infer(1), infer(BAD, request_id="own"), infer(2), infer(3))
        assert [succeeded(answer) for at, answer in enumerate(answers) if at != 1] == [[2], [4], [6]]
        assert (answers[1].code, answers[1].text) == (Code.INVALID_ARGUMENT, "[request id: own] a bad row")
        assert "x-batch-id" in answers[1].trailers
        assert on.requests("m", 400) == 1
        assert sizes(fake) == [4, 2, 2, 1, 1]


async def test_a_merged_message_over_the_servers_limit_is_cut_up() -> None:
    """The clients do not know of the limit, nor whether their requests are merged."""
    async with (
        fake_grpc_server(doubles, max_receive_message_length=250) as fake,
        grpc_proxy(fake.url, max_batch_rows=80, **TOGETHER) as on,
    ):
        answers = await on.calls(*[infer(*[at] * 20) for at in range(4)])
        assert [succeeded(answer) for answer in answers] == [[at * 2.0] * 20 for at in range(4)]
        assert [rows_of(call) for call in fake.calls if call.messages] == [40, 40]


async def test_an_error_over_the_limit_of_metadata_fails_alone() -> None:
    """In its place, grpcio reports an error with the code of an overloaded server."""

    def quotes(call: Call) -> Reply:
        reply = doubles(call)
        return Reply(code=reply.code, text="x" * 100_000) if reply.code else reply

    async with merging(quotes, max_batch_rows=3, **TOGETHER) as (on, _):
        answers = await on.calls(infer(1), infer(BAD), infer(2))
        assert [answer.code for answer in answers] == [Code.OK, Code.RESOURCE_EXHAUSTED, Code.OK]


async def test_an_answer_names_one_batch() -> None:
    """Ours, if the server batches, too."""
    trailers = (("x-batch-id", "theirs"), ("x-batch-size", "7"))
    reply = Reply(code=Code.INVALID_ARGUMENT, text="no", trailers=trailers)
    async with merging(lambda call: reply) as (on, _):
        method: Any = on.channel.unary_unary(INFER)
        with pytest.raises(aio.AioRpcError) as failed:
            await method(infer(1))
        trailing: Any = failed.value.trailing_metadata()
        named = [value for name, value in trailing if name in ("x-batch-id", "x-batch-size")]

        assert (len(named), "theirs" in named, "7" in named) == (2, False, False)


async def test_an_error_for_all_has_nobodys_values() -> None:
    """Neither its text nor its details come along, only when to try again."""
    trailers = (("grpc-status-details-bin", b"\xff"), ("grpc-retry-pushback-ms", "0"), ("x-request", "7"))
    reply = Reply(code=Code.UNAVAILABLE, text="Exceeds maximum queue size", trailers=trailers)
    async with merging(lambda call: reply, max_batch_rows=2, **TOGETHER) as (on, fake):
        answers = await on.calls(infer(1), infer(2))
        text = "the model server refused a call with the requests of several clients"
        assert {(answer.code, answer.text) for answer in answers} == {(Code.UNAVAILABLE, text)}
        assert len(fake.calls) == 1
        for answer in answers:
            assert answer.trailers["grpc-retry-pushback-ms"] == "0"
            assert not {"grpc-status-details-bin", "x-request"} & answer.trailers.keys()


async def test_a_reply_that_cannot_be_split_is_asked_for_one_by_one() -> None:
    """A model without batching: each request gets the answer to itself, metadata and trailers too."""

    def one_row(call: Call) -> Reply:
        reply = doubles(call)
        if rows_of(call) > 1:
            reply = doubles(Call(path=INFER, metadata=(), messages=[infer(7, 8, 9)], time_left_s=None))
        elif values_of(call) == [1]:
            reply.metadata, reply.trailers = (("x-first", "1"),), (("x-last", "2"),)
        return reply

    async with merging(one_row, max_batch_rows=2, **TOGETHER) as (on, fake):
        answers = await on.calls(infer(1), infer(2))
        assert [succeeded(answer) for answer in answers] == [[2], [4]]
        assert answers[0].metadata["x-first"] == "1"
        assert answers[0].trailers["x-last"] == "2"
        assert sizes(fake) == [2, 1, 1]


# What clients say with their calls


async def test_callers_with_other_credentials_do_not_share_a_call() -> None:
    """The call has the metadata that may identify the caller and the trace, and no other."""
    async with merging(max_batch_rows=2, **TOGETHER) as (on, fake):
        one, two = (("authorization", f"Bearer {name}") for name in ("one", "two"))
        trace = ("traceparent", "00-1-2-00")
        calls = [
            on.call(infer(1), one, ("x-other", "1")),
            on.call(infer(2), two, trace),
            on.call(infer(3), one),
            on.call(infer(4), two, trace),
        ]
        assert [succeeded(answer) for answer in await asyncio.gather(*calls)] == [[2], [4], [6], [8]]
        sent = {frozenset(call.metadata) for call in fake.calls}
        assert sent == {frozenset([one]), frozenset([two, trace])}
        assert sizes(fake) == [2, 2]


async def test_metadata_that_cannot_be_sent_on_fails_no_call_of_others() -> None:
    async with merging(max_batch_rows=1) as (on, fake):
        metadata = ((b"traceparent", b"\xff"),)
        call, stream = opened(on.proxy.front_end, INFER.encode(), metadata=metadata)
        call.message_received(infer(1))
        call.end_received()
        assert (stream.code, stream.text[:27]) == (Code.INVALID_ARGUMENT, "the metadata 'traceparent' ")
        assert fake.calls == []


async def test_the_deadline_is_passed_on_and_kept() -> None:
    async with merging(lambda call: None) as (on, fake):
        while not fake.calls:  # on a busy machine, the deadline may pass before
            answer = await on.call(infer(1), timeout_s=0.3)
            assert answer.code == Code.DEADLINE_EXCEEDED
        assert 0 < (fake.calls[0].time_left_s or 0) <= 0.35
        await fake.cancelled.wait()


async def test_a_client_that_cancels_leaves_the_queue() -> None:
    async with merging(max_batch_rows=9, policy="fixed:60000", max_hold_s=60.0) as (on, fake):
        calling = asyncio.ensure_future(on.call(infer(1, 2)))
        while on.queued() != 2:
            await turns(1)
        calling.cancel()
        while on.queued():
            await turns(1)
        with pytest.raises(asyncio.CancelledError):
            await calling
        while on.requests("(unknown)", 499) != 1:
            await turns(1)
        assert fake.calls == []


async def test_api_keys_are_required_for_all_that_reaches_a_server() -> None:
    """Also for the health of a name, which a server knows; not for that of the proxy."""
    async with merging(keys=ApiKeys([KEY.encode()])) as (on, fake):
        checked = len(fake.checked)
        for path, body in (
            (INFER, infer(1)),
            ("/some.Service/Method", infer(1)),
            (CHECK, NAMED),
            (WATCH, NAMED),
        ):
            assert (await on.call(body, path=path)).code == Code.UNAUTHENTICATED
            assert (fake.calls, len(fake.checked)) == ([], checked)
        assert succeeded(await on.call(infer(1), ("x-api-key", KEY))) == [2]
        assert (await on.call(NAMED, ("x-api-key", KEY), path=CHECK)).code == Code.UNIMPLEMENTED
        assert (await on.call(b"", path=CHECK)).message == b"\x08\x01"


async def test_a_revoked_key_ends_the_calls_that_pass_through() -> None:
    """So does a health watch of a model, which the servers answer, but not one that the proxy answers."""
    async with merging(keys=ApiKeys([KEY.encode()])) as (on, fake):
        metadata = ((b"x-api-key", KEY.encode()),)
        paths = (b"/some.Service/Method", WATCH.encode(), WATCH.encode())
        calls = [opened(on.proxy.front_end, path, metadata=metadata) for path in paths]
        for (call, _), question in zip(calls, (b"any", NAMED, b""), strict=True):
            call.message_received(question)
        keys = ApiKeys([b"another-key-of-the-tests"])
        on.proxy.change([fake.url], ProxySettings(policy="fixed:0", grpc=True, keys=keys))
        codes = [stream.code for _, stream in calls]
        assert codes == [Code.UNAUTHENTICATED, Code.UNAUTHENTICATED, None]


async def test_a_stop_ends_the_watches_that_the_proxy_answers() -> None:
    """Streams to the servers continue."""
    async with merging() as (on, _):
        watch, watched = opened(on.proxy.front_end, WATCH.encode())
        watch.message_received(b"")
        _, passing = opened(on.proxy.front_end, b"/some.Service/Method")
        on.proxy.front_end.give_up()
        assert (watched.code, passing.code) == (Code.UNAVAILABLE, None)


async def test_the_proxy_answers_for_its_own_health() -> None:
    async with merging() as (on, fake):
        assert (await on.call(b"", path=CHECK)).message == b"\x08\x01"
        checked = len(fake.checked)
        on.proxy.front_end.retire()
        assert (await on.call(b"", path=CHECK)).message == b"\x08\x02"
        assert len(fake.checked) == checked


async def test_a_watch_hears_that_the_only_server_died_while_it_was_busy() -> None:
    """No idle slot is lost then, by which the dispatcher would hear of it."""
    async with fake_grpc_server(lambda call: None) as dying, grpc_proxy(dying.url) as on:
        watch: aio.UnaryStreamMultiCallable[bytes, bytes] = on.channel.unary_stream(WATCH)
        watching = watch(b"")
        statuses = aiter(watching)
        assert await anext(statuses) == b"\x08\x01"
        calling = asyncio.ensure_future(on.call(infer(1)))
        await dying.called(1)
        await dying.stop()

        assert await anext(statuses) == b"\x08\x02"
        watching.cancel()
        assert await watching.code() is grpc.StatusCode.CANCELLED
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (ok(b"\x08\x02"), Code.OK),
        (Reply(code=Code.NOT_FOUND, text="unknown service"), Code.NOT_FOUND),
    ],
)
async def test_the_health_of_a_name_is_what_a_server_says(reply: Reply, code: Code) -> None:
    async with merging() as (on, fake):
        health: list[bytes] = []

        def check(call: Call) -> Reply:
            health.append(call.body)
            return reply if call.body == NAMED else ok(b"\x08\x01")

        fake.checks[CHECK] = check
        answer = await on.call(NAMED, path=CHECK)
        assert (answer.code, answer.text, [answer.message]) == (code, reply.text, [*reply.messages] or [b""])
        assert NAMED in health
        assert (await on.call(b"", path=CHECK)).message == b"\x08\x01"


async def test_a_watch_of_a_name_is_a_stream_of_a_server() -> None:
    """Of which nothing is left when the client cancels it."""
    async with merging(lambda call: Reply(messages=(b"\x08\x02", b"\x08\x01"))) as (on, fake):
        watch: aio.UnaryStreamMultiCallable[bytes, bytes] = on.channel.unary_stream(WATCH)
        assert [status async for status in watch(NAMED)] == [b"\x08\x02", b"\x08\x01"]
        assert fake.calls[0].body == NAMED

        fake.script = lambda call: None
        watching = watch(NAMED)
        await fake.called(2)
        watching.cancel()
        await fake.cancelled.wait()
        assert await watching.code() is grpc.StatusCode.CANCELLED


async def test_a_check_without_a_message_or_with_a_wrong_one_is_answered_by_the_proxy() -> None:
    async with merging() as (on, fake):
        checked = len(fake.checked)
        answer = await on.call(b"\xff", path=CHECK)
        assert (answer.code, len(fake.checked)) == (Code.INVALID_ARGUMENT, checked)
        stream: aio.StreamStreamCall[bytes, bytes] = on.channel.stream_stream(CHECK)()
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.INTERNAL
        assert "takes one message" in (await stream.details() or "")


# What does not merge


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (infer(1, sequence_id="5"), INFER),
        (infer(1, model=""), INFER),
        (infer(1, model="a\nb"), INFER),
        (infer(1, model="m" * 257), INFER),
        (message("inference.ModelInferRequest")(model_name="m").SerializeToString(), INFER),
        (b"asked", "/inference.GRPCInferenceService/ModelMetadata"),
    ],
)
async def test_a_request_that_cannot_share_a_call_is_relayed_as_it_is(request_: bytes, path: str) -> None:
    reply = Reply(messages=(b"\xff any",), metadata=(("x-first", "1"),), trailers=(("x-last", "2"),))
    async with merging(lambda call: reply) as (on, fake):
        sent = (("x-other", "1"), ("x-request-id", "one"))
        answer = await on.call(request_, *sent, path=path, timeout_s=HANG_S)
        assert (answer.code, answer.message) == (Code.OK, b"\xff any")
        assert (answer.metadata["x-first"], answer.trailers["x-last"]) == ("1", "2")
        assert "x-batch-id" not in answer.trailers
        assert answer.trailers["x-request-id"] == "one"
        (call,) = fake.calls
        assert (call.path, call.body, call.metadata) == (path, request_, sent)
        assert 0 < (call.time_left_s or 0) < HANG_S + 2


async def test_a_request_of_more_fields_than_are_read_is_relayed() -> None:
    """Each number counts. Uncork's own services refuse such a request, but a model server may take it."""
    contents = {"int64_contents": [1] * 1_100_000}
    tensor = {"name": "x", "datatype": "INT64", "shape": [1, 1_100_000], "contents": contents}
    request = message("inference.ModelInferRequest")(model_name="m", inputs=[tensor]).SerializeToString()
    async with merging(lambda call: ok(b"\xff any")) as (on, fake):
        answer = await on.call(request)
        assert (answer.code, answer.message) == (Code.OK, b"\xff any")
        assert [call.body for call in fake.calls] == [request]


async def test_a_relayed_error_is_the_servers() -> None:
    reply = Reply(code=Code.FAILED_PRECONDITION, text="no sequence", trailers=(("x-last", "2"),))
    async with merging(lambda call: reply) as (on, _):
        answer = await on.call(infer(1, sequence_id="5"))
        assert (answer.code, answer.text) == (Code.FAILED_PRECONDITION, "no sequence")
        assert answer.trailers["x-last"] == "2"


async def test_malformed_requests_are_refused_without_a_call() -> None:
    async with merging() as (on, fake):
        for body, text in (
            (b"\xff", "not a valid inference.ModelInferRequest"),
            (infer(1)[:-1], "not a valid"),
        ):
            answer = await on.call(body)
            assert answer.code == Code.INVALID_ARGUMENT
            assert text in answer.text
        assert fake.calls == []


async def test_a_stream_passes_through_and_outlives_the_change_to_other_servers() -> None:
    async with merging() as (on, fake), fake_grpc_server(doubles) as other:
        fake.talk = True
        stream: aio.StreamStreamCall[bytes, bytes] = on.channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer"
        )()
        await stream.write(b"a" * 3 * 2**20)
        assert await stream.read() == b"a" * 3 * 2**20
        assert (await stream.initial_metadata())["x-talks"] == "1"
        [former] = on.proxy._servers.all
        closed = weakref.ref(former.channel)
        del former
        on.proxy.change([other.url], ProxySettings(policy="fixed:0", grpc=True))
        await until(lambda: [slot.url for slot in on.proxy.slots()] == [other.url])

        await until(lambda: closed() is None)
        assert succeeded(await on.call(infer(2))) == [4]
        await stream.write(b"b")
        assert await stream.read() == b"b"
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK


# The whole


async def test_only_one_method_merges_if_the_protocol_says_so() -> None:
    async with merging(protocol="tfserving") as (on, _):
        assert "x-batch-id" in (await on.call(predict(1), path=PREDICT)).trailers
        assert "x-batch-id" not in (await on.call(infer(1))).trailers


@pytest.mark.parametrize(
    ("urls", "settings", "text"),
    [
        (
            ["grpc://127.0.0.1:1"],
            {"protocol": "v1"},
            "protocol must be auto, v2 or tfserving for gRPC servers, got v1",
        ),
        (["grpc://127.0.0.1:1"], {"health_path": "/health"}, "health_path is for HTTP servers"),
        (["grpc://127.0.0.1:1", "http://127.0.0.1:1"], {}, "all servers must speak the same protocol"),
    ],
)
async def test_wrong_settings_are_refused(urls: list[str], settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Proxy(urls, ProxySettings(**settings))


async def test_without_a_healthy_server_calls_are_refused() -> None:
    async with fake_grpc_server(doubles) as fake:
        await fake.stop()
        async with grpc_proxy(fake.url, healthy=False) as on:
            answer = await on.call(b"", path="/s/m")
            assert (answer.code, answer.text) == (Code.UNAVAILABLE, "no server is healthy")
            assert answer.trailers["grpc-retry-pushback-ms"] == "1000"
            assert (await on.call(b"", path=CHECK)).message == b"\x08\x02"
            reason = f"no server is healthy: {fake.url}: failed to connect"
            await until(lambda: on.proxy.not_ready_reason.startswith(reason))
