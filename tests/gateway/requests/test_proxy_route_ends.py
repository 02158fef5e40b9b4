"""Requests through the proxy that are rejected, fail, or are relayed alone."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from tests.examples import at_most
from tests.gateway.backends.model_servers.fake_server import Call, fake_server
from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.client import JSON, Reply, request
from tests.gateway.proxy_stage import (
    V1,
    V2,
    Header,
    Model,
    doubles,
    error,
    infer,
    merging,
    predictions,
    proxy,
    rows_body,
    served,
    sizes,
)
from tests.gateway.running import turns

# Refusals


MALFORMED = [
    (V1, b""),
    (V1, b"{"),
    (V1, b"[1]"),
    (V1, b'{"instances": 1}'),
    (V1, b'{"rows": [1]}'),
    (V1, b'{"instances": ["\xff"]}'),
    (V2, b"null"),
    (V2, b'{"inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1]}]}'),
    (V2, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "INT65", "data": [1]}]}'),
]


@pytest.mark.parametrize(("target", "body"), MALFORMED)
async def test_a_malformed_request_is_refused_alone(target: bytes, body: bytes) -> None:
    """400 with the reason, and no call; other requests are answered."""
    async with merging() as (on, model):
        bad, good = on.ask(body, target), on.ask(rows_body(1))

        assert error(await bad.reply(), 400)
        assert predictions(await good.reply()) == [2]
        assert len(model.calls) == 1


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A request with some bytes replaced, and its target."""
    target, body = draw(
        st.sampled_from(
            [(V1, rows_body(1, [2], sig="a")), (V2, infer(1, 2, id="a")), (V1, b'{"inputs":{"a":[1]}}')]
        )
    )
    start = draw(st.integers(0, len(body)))
    end = draw(st.integers(start, min(len(body), start + 8)))
    return target, body[:start] + draw(st.binary(max_size=4)) + body[end:]


@at_most(20)
@given(bad=st.lists(spoilt(), min_size=1, max_size=6))
@example(bad=[(V1, rows_body(None)), (V1, rows_body({}))])
async def test_spoilt_bytes_are_never_a_fault_of_ours(bad: list[tuple[bytes, bytes]]) -> None:
    """They get the server's reply or 400; other requests are answered."""

    def strict(call: Call) -> Answer:
        try:
            rows = json.loads(call.body)["instances"]
            assert all(isinstance(row, int) for row in rows)
        except (ValueError, KeyError, TypeError, AssertionError):
            return Answer(b"not mine", 422, (JSON,))
        return doubles(call)

    async with merging(strict) as (on, _):
        good = [on.ask(rows_body(1))]
        callers = [on.ask(body, target) for target, body in bad]
        good.append(on.ask(rows_body(2, 3)))
        statuses = {reply.status for reply in await on.replies(callers)}

        assert statuses <= {200, 400, 422}
        assert [predictions(reply) for reply in await on.replies(good)] == [[2], [4, 6]]


async def test_a_wrong_length_of_the_json_is_refused() -> None:
    """The message says what it must be."""
    async with merging() as (on, model):
        header = (b"inference-header-content-length", b"9999")
        reply = await on.ask(infer(1), V2, header).reply()

        assert error(reply, 400).startswith("Inference-Header-Content-Length must be from 0 to")
        assert model.calls == []


@pytest.mark.parametrize("target", [V1, V2], ids=["merged", "relayed"])
@pytest.mark.parametrize(("status", "errors"), [(503, 2), (500, 2), (429, 0)])
async def test_an_error_of_the_server_counts_as_one(target: bytes, status: int, errors: int) -> None:
    """This holds for a 503, too, which is not the proxy's refusal, and for relayed requests."""
    body = rows_body(1) if target == V1 else infer(1, parameters={"sequence_id": 1})

    async with merging(lambda call: Answer(b"{}", status, (JSON,))) as (on, _):
        await on.replies([on.ask(body, target), on.ask(body, target)])

        lines = generate_latest(on.proxy.front_end.exposition.registry).decode().splitlines()
        counted = [float(line.split()[-1]) for line in lines if line.startswith("uncork_errors_total{")]
        assert sum(counted) == errors


async def test_a_response_names_one_batch() -> None:
    """Ours, if the server batches, too."""
    theirs = ((b"x-batch-id", b"theirs"), (b"x-batch-size", b"7"))
    async with merging(lambda call: Answer(b"{}", 422, (JSON, *theirs))) as (on, _):
        reply = await on.ask(rows_body(1)).reply()

        assert (reply.status, reply.headers["x-batch-size"]) == (422, "1")
        assert reply.headers["x-batch-id"] != "theirs"


async def test_a_success_without_the_results_of_a_part_is_not_an_answer_to_the_whole() -> None:
    """The request is sent again, whole and unchanged; the client gets the response to that."""

    def accepts(call: Call) -> Answer:
        return doubles(call)._replace(status=202)

    async with merging(accepts, max_batch_rows=2) as (on, model):
        reply = await on.ask(rows_body(1, 2, 3)).reply()

        assert (reply.status, json.loads(reply.body)) == (202, {"predictions": [2, 4, 6]})
        assert model.calls[-1].body == rows_body(1, 2, 3)


async def test_a_status_without_a_body_leaves_the_connection_in_step() -> None:
    """Each client of a call gets the status; the text for several clients would be its next response."""
    async with merging(lambda call: Answer(b"", 304), idempotent=False) as (on, model):
        callers = [on.ask(rows_body(1)), on.ask(rows_body(2))]
        assert [(reply.status, reply.body) for reply in await on.replies(callers)] == [(304, b"")] * 2

        model.script = doubles
        for caller in callers:
            caller.received = b""
            caller.send(request(rows_body(3), path=V1))
            assert predictions(await caller.reply()) == [6]


async def test_a_call_that_breaks_again_and_again_is_502() -> None:
    """It is tried twice together and once alone; each request gets the reason."""
    async with (
        fake_server(lambda call: Answer(b"{", missing=9)) as server,
        proxy(server.url) as on,
    ):
        replies = await on.replies([on.ask(rows_body(1)), on.ask(rows_body(2))])

        assert [bool(error(reply, 502)) for reply in replies] == [True, True]
        assert sorted(len(json.loads(call.body)["instances"]) for call in server.calls) == [1, 1, 2, 2]


# Relayed requests


@pytest.mark.parametrize(
    ("target", "body", "headers"),
    [
        (V1, b"\x0b\x02\x80", ((b"content-encoding", b"br"),)),
        (V2, infer(1, parameters={"sequence_id": 1}), ()),
        (V2, infer(1, outputs=[{"name": "o", "parameters": {"shared_memory_region": "r"}}]), ()),
        (V1, b'{"inputs": {"a": [1], "b": [1, 2]}}', ()),
        (V2, b'{"inputs": [], "x": 1}', ()),
        (V2, b"\x00\x01", ((b"inference-header-content-length", b"0"),)),
    ],
)
async def test_what_must_not_be_merged_is_relayed(
    target: bytes, body: bytes, headers: tuple[Header, ...]
) -> None:
    """Each is relayed alone with its own headers, and the response has those of the server."""
    answer = Answer(
        b"\x00as it is",
        207,
        ((b"x-of-the-server", b"1"), (b"X-Request-Id", b"the server's"), (b"content-type", b"text/x")),
    )

    async with merging(lambda call: answer) as (on, model):
        own = [((b"x-request-id", b"%d" % number), (b"accept-encoding", b"br")) for number in range(2)]
        replies = await on.replies([on.ask(body, target, *headers, *each) for each in own])

        assert sorted(call.header(b"x-request-id") or b"" for call in model.calls) == [b"0", b"1"]
        for call in model.calls:
            assert (call.method, call.target, call.body) == (b"POST", target, body)
            assert call.header(b"accept-encoding") == b"br"
            assert set(headers) <= set(call.headers)
        for number, reply in enumerate(replies):
            assert reply == Reply(
                207,
                {
                    "x-of-the-server": "1",
                    "x-request-id": str(number),
                    "content-type": "text/x",
                    "content-length": "9",
                },
                answer.body,
            )


@pytest.mark.parametrize("target", [V1, V2, b"/x"])
async def test_a_status_that_there_is_not_is_502(target: bytes) -> None:
    """The request fails and the next call is made; the same holds for relayed requests."""
    body = rows_body(1) if target == V1 else infer(1, parameters={"sequence_id": 1})

    model = Model(lambda call: Answer(b"odd", 599))
    async with fake_server(lambda call: Answer(b"odd", 600)) as server, proxy(server.url) as on:
        for _ in range(2):
            for reply in await on.replies([on.ask(body, target), on.ask(body, target)]):
                message = "the server returned status 600, which is not valid in HTTP; the highest is 599"
                assert error(reply, 502) == message
    async with served(model) as url, proxy(url) as on:
        last = await on.http.post(target.decode(), content=body)
        assert (last.status_code, last.content) == (599, b"odd")


async def test_a_relayed_request_whose_server_breaks_off_is_502() -> None:
    """It may have had an effect: it is not sent again."""
    async with (
        fake_server(lambda call: Answer(b"{", missing=9)) as server,
        proxy(server.url) as on,
    ):
        reply = await on.ask(infer(1, parameters={"sequence_id": 1}), V2).reply()

        assert error(reply, 502).startswith("the server cut its response short: ")
        assert len(server.calls) == 1


async def test_a_caller_who_leaves_a_relayed_request_has_it_hung_up() -> None:
    """The server's work would be for nobody."""
    async with fake_server(lambda call: None) as server, proxy(server.url) as on:
        caller = on.ask(infer(1, parameters={"sequence_id": 1}), V2)
        await server.called.wait()
        caller.leave()
        await server.hung_up.wait()

        assert caller.received == b""


async def test_large_bodies_that_are_relayed_are_bounded_together() -> None:
    """They would wait for a slow server without limit. Small ones are always accepted."""
    encoded, body = (b"content-encoding", b"br"), b"x" * 100_000

    async with merging(lambda call: Answer(b"{}")) as (on, model):
        pool = on.proxy.front_end.listener.pool
        pool.max_bytes = 150_000
        model.gate.clear()
        asking = [on.ask(each, V1, encoded) for each in (body, body, body, b"x")]
        await model.called(3)
        assert pool.used_bytes == 200_001
        model.gate.set()
        replies = await on.replies(asking)
        assert [reply.status for reply in replies] == [200, 200, 503, 200]
        assert error(replies[2], 503) == "overloaded: too many large bodies are being received or relayed"
        assert pool.used_bytes == 0
        metrics = await on.http.get("/metrics")
        assert 'uncork_shed_total{api="(unknown)",reason="no_room"} 1.0' in metrics.text

        model.gate.clear()
        leaver = on.ask(body, V1, encoded)
        await model.called(4)
        leaver.leave()
        while pool.used_bytes:
            await turns(1)


async def test_a_request_that_expires_while_it_is_queued_is_504() -> None:
    """It is never sent."""
    async with merging() as (on, model):
        model.gate.clear()
        first = on.ask(rows_body(1))
        await model.called(1)
        late = await on.ask(rows_body(2), V1, (b"x-request-timeout-ms", b"1")).reply()
        model.gate.set()
        await first.reply()

        assert (
            error(late, 504) == "the timeout in X-Request-Timeout-Ms expired before the request was executed"
        )
        assert sizes(model) == [1]


async def test_a_request_that_is_relayed_alone_ends_when_its_time_has_passed() -> None:
    """Although its server still works on it."""
    async with merging(timeout_s=5) as (on, model):
        model.gate.clear()
        late = on.ask(b"x", V1, (b"content-encoding", b"br"), (b"x-request-timeout-ms", b"1"))

        told = error(await late.reply(), 504)
        assert told == "the timeout in X-Request-Timeout-Ms expired while the request was running"


async def test_a_part_that_is_refused_as_another_starts_leaves_the_slot_to_others() -> None:
    """The request is withdrawn before its first part is sent; every request after it is answered."""
    flow = (b"x-flow", b"y")
    async with merging(fair_by=b"x-flow", max_batch_rows=2, max_queue_rows=4, concurrency=2) as (
        on,
        model,
    ):
        split, other = on.ask(rows_body(1, 2, 3, 4)), on.ask(rows_body(5), V1, flow)

        assert error(await split.reply(), 503)
        assert predictions(await other.reply()) == [10]
        assert 1 in sizes(model)
        for _ in range(5):
            assert predictions(await on.ask(rows_body(6)).reply()) == [12]


# Memory


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b'{"predictions": [1]}', 200, (JSON,)),
        Answer(b'{"predictions": [1, 2]}', 200, (JSON,)),
        Answer(b'{"predictions": 1', 200, (JSON,)),
        Answer(b'{"error": "no"}', 500, (JSON,)),
        Answer(b"", 302, ((b"location", b"/"),)),
    ],
)
@pytest.mark.parametrize("callers", [1, 2])
async def test_a_request_leaves_nothing_to_the_garbage_collector(answer: Answer, callers: int) -> None:
    """The collector runs rarely: memory would grow with requests."""
    async with merging(lambda call: answer) as (on, _):
        gc.disable()
        try:
            asking = [on.ask(rows_body(row)) for row in range(callers)]
            for caller in asking:
                await caller.reply()
                caller.leave()
                del caller.protocol
            kept = list(map(weakref.ref, asking))
            del asking, caller
            await turns()

            assert [one() for one in kept] == [None] * callers
        finally:
            gc.enable()
