"""Requests through the proxy: which are merged, and what each caller gets."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.gateway.backends.model_servers.fake_server import Call
from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.proxy_stage import (
    BAD,
    V1,
    V2,
    Caller,
    Header,
    doubles,
    error,
    infer,
    merging,
    predictions,
    reverses,
    rows_body,
    sizes,
)
from tests.gateway.running import turns
from uncork_gateway.headers import HeaderRules

# Merging


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((V1, ()), (b"/v1/models/n:predict", ())),
        ((V1, ()), (b"/behind" + V1, ())),
        ((V1, ()), (V1 + b"?a=1", ())),
        ((V1 + b"?a=1", ()), (V1 + b"?a=2", ())),
        ((V1, ()), (V1, ((b"authorization", b"me"),))),
        ((V1, ((b"Authorization", b"me"),)), (V1, ((b"authorization", b"you"),))),
        ((V1, ((b"X-Api-Key", b"me"),)), (V1, ((b"x-api-key", b"you"),))),
        ((V1, ((b"cookie", b"a=1"),)), (V1, ((b"cookie", b"a=2"),))),
        ((V1, ((b"x-tenant", b"1"),)), (V1, ((b"X-Tenant", b"2"),))),
    ],
)
async def test_requests_of_different_keys_are_different_calls(
    one: tuple[bytes, tuple[Header, ...]], other: tuple[bytes, tuple[Header, ...]]
) -> None:
    """Path, query and keyed headers separate them; each call has those of its requests."""
    rules = HeaderRules(keyed=HeaderRules().keyed | {b"x-tenant"})

    async with merging(headers=rules) as (on, model):
        asking = [(1, one), (2, other), (3, one), (4, other)]
        callers = [on.ask(rows_body(row), target, *headers) for row, (target, headers) in asking]
        replies = await on.replies(callers)

        assert model.bodies() == [{"instances": [1, 3]}, {"instances": [2, 4]}]
        assert [predictions(reply) for reply in replies] == [[2], [4], [6], [8]]
        for call, (target, headers) in zip(model.calls, (one, other), strict=True):
            assert call.target == target
            for name in (b"authorization", b"x-api-key", b"cookie", b"x-tenant"):
                assert call.header(name) == {key.lower(): value for key, value in headers}.get(name)


@pytest.mark.parametrize(
    ("target", "one", "other"),
    [
        (V1, rows_body(1), rows_body(1, signature_name="other")),
        (V2, infer(1), infer(1, parameters={"t": 1})),
    ],
)
async def test_bodies_of_different_keys_are_different_calls(target: bytes, one: bytes, other: bytes) -> None:
    """All but the values of rows separates them; requests of one key share a call."""

    def answers(call: Call) -> Answer:
        return Answer(b"", 503, ((b"location", call.body.hex().encode()),))

    async with merging(answers) as (on, model):
        callers = [on.ask(body, target) for body in (one, other, one, other)]
        replies = await on.replies(callers)

        assert len(model.calls) == 2
        assert [reply.headers["location"] for reply in replies] == [
            call.body.hex() for call in model.calls * 2
        ]
        assert {reply.status for reply in replies} == {503}


async def test_a_merged_call_has_no_headers_of_one_request() -> None:
    """A call has only the passed headers of its first request: the trace, but no request id."""
    async with merging() as (on, model):
        private = [(b"x-request-id", b"1"), (b"accept", b"text/html"), (b"x-forwarded-for", b"me")]
        callers = [on.ask(rows_body(1), V1, (b"traceparent", b"first"), *private), on.ask(rows_body(2))]
        await on.replies(callers)

        [call] = model.calls
        assert {name for name, _ in call.headers} == {
            *(b"host", b"content-type", b"content-length", b"accept-encoding", b"traceparent"),
        }
        assert (call.header(b"traceparent"), call.header(b"accept-encoding")) == (b"first", b"identity")


async def test_a_header_that_several_rules_name_is_sent_once() -> None:
    """The call has a content type of its own, too."""
    own = HeaderRules()
    rules = HeaderRules(keyed=own.keyed | {b"content-type"}, passed=own.passed | {b"authorization"})

    async with merging(headers=rules) as (on, model):
        await on.replies([on.ask(rows_body(row), V1, (b"authorization", b"me")) for row in (1, 2)])

        [call] = model.calls
        assert (call.header(b"authorization"), call.header(b"content-type")) == (b"me", b"application/json")


async def test_headers_that_connection_names_go_no_further() -> None:
    """Merged or relayed, as if the client had not sent them."""
    rules = HeaderRules(keyed=HeaderRules().keyed | {b"x-tenant"})
    tenant, hop = (b"x-tenant", b"1"), (b"Connection", b"keep-alive, X-Tenant ,traceparent")

    def answers(call: Call) -> Answer:
        return doubles(call) if call.body.startswith(b"{") else Answer(b"{}")

    async with merging(answers, headers=rules) as (on, model):
        callers = [
            on.ask(rows_body(1), V1, hop, tenant, (b"traceparent", b"mine")),
            on.ask(rows_body(2), V1, tenant),
            on.ask(rows_body(3)),
            on.ask(b"\x0b", V1, hop, tenant, (b"traceparent", b"mine"), (b"content-encoding", b"br")),
        ]
        assert [reply.status for reply in await on.replies(callers)] == [200] * 4

        names = (b"x-tenant", b"traceparent")
        assert sorted((call.body, *map(call.header, names)) for call in model.calls) == [
            (b"\x0b", None, None),
            (b'{"instances":[1,3]}', None, None),
            (b'{"instances":[2]}', b"1", None),
        ]


async def test_a_call_for_one_request_has_its_id() -> None:
    """The client's, or the one that its response has."""
    async with merging() as (on, model):
        asked = [on.ask(rows_body(1), V1, (b"X-Request-Id", b"one"))]
        replies = await on.replies(asked)
        replies += await on.replies([on.ask(rows_body(2))])

        sent = [(call.header(b"x-request-id") or b"").decode() for call in model.calls]
        assert sent == [reply.headers["x-request-id"] for reply in replies]
        assert sent[0] == "one"


async def test_spaces_around_values_are_no_reason_to_refuse() -> None:
    """Some clients send them; they are dropped."""
    async with merging() as (on, model):
        headers = ((b"authorization", b"me \t"), (b"traceparent", b" 1 "))
        callers = [
            on.ask(rows_body(1), V1, *headers),
            on.ask(rows_body(2), V1, (b"authorization", b"me")),
        ]
        replies = await on.replies(callers)

        assert [predictions(reply) for reply in replies] == [[2], [4]]
        [call] = model.calls
        assert (call.header(b"authorization"), call.header(b"traceparent")) == (b"me", b"1")


@pytest.mark.parametrize("timeout_ms", [b"300000", None])
async def test_the_server_is_told_how_long_somebody_waits(timeout_ms: bytes | None) -> None:
    async with merging() as (on, model):
        name = b"x-request-timeout-ms"
        headers = [(name, timeout_ms)] if timeout_ms else []
        await on.replies([on.ask(rows_body(1), V1, *headers), on.ask(rows_body(2), V1, (name, b"9"))][:1])

        told = model.calls[0].header(name)
        assert told is None if timeout_ms is None else 9 < int(told or 0) <= 300_000


class Row(NamedTuple):
    """The parts of a request that make its key."""

    model: str
    tenant: str
    signature: str


ROWS = st.builds(Row, *[st.sampled_from(["a", "b"]) for _ in Row._fields])


@at_most(15)
@given(
    traffic=st.lists(st.tuples(ROWS, st.integers(1, 9), st.booleans()), min_size=1, max_size=9),
    most_rows=st.integers(1, 8),
    concurrency=st.integers(1, 3),
)
async def test_every_caller_gets_the_answers_to_its_own_rows(
    traffic: list[tuple[Row, int, bool]], most_rows: int, concurrency: int
) -> None:
    def shouts(call: Call) -> Answer:
        body = json.loads(call.body)
        texts = body["instances"]
        row = Row(call.target[11:12].decode(), (call.header(b"authorization") or b"").decode(), body["sig"])
        assert all(text.startswith("/".join(row) + "#") for text in texts)
        assert len(texts) <= most_rows
        # A call has the id of its request, if it is for one.
        numbers = {text.rpartition("#")[2].partition(".")[0] for text in texts}
        ids = {value.decode() for name, value in call.headers if name.startswith(b"x-")}
        assert not ids or ids == numbers
        return Answer(json.dumps({"predictions": [text.upper() for text in texts]}).encode())

    async with merging(shouts, max_batch_rows=most_rows, concurrency=concurrency) as (on, model):
        callers, expected = [], []
        for number, (key, count, turn) in enumerate(traffic):
            rows = [f"{'/'.join(key)}#{number}.{at}" for at in range(count)]
            target = f"/v1/models/{key.model}:predict".encode()
            headers = ((b"authorization", key.tenant.encode()), (b"x-request-id", b"%d" % number))
            callers.append(on.ask(rows_body(*rows, sig=key.signature), target, *headers))
            expected.append([row.upper() for row in rows])
            if turn:
                await turns(1)
        replies = await on.replies(callers)

        assert [predictions(reply) for reply in replies] == expected
        assert sum(sizes(model)) == sum(count for _, count, _ in traffic)


@at_most(15)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    ids=st.lists(st.sampled_from([None, "same", "own"]), min_size=6, max_size=6),
)
async def test_ids_come_back_to_those_who_gave_them(counts: list[int], ids: list[str | None]) -> None:
    async with merging(reverses, max_batch_rows=4) as (on, _):
        bodies = []
        for number, (count, name) in enumerate(zip(counts, ids, strict=False)):
            told = {} if name is None else {"id": name}
            bodies.append(infer(*[number * 10 + at for at in range(count)], **told))
        replies = await on.replies([on.ask(body, V2) for body in bodies])

        for number, (reply, count, name) in enumerate(zip(replies, counts, ids, strict=False)):
            told = json.loads(reply.body)
            assert told.get("id") == name
            [output] = told["outputs"]
            assert output["data"] == [number * 10 + at for at in range(count)]
            assert output["shape"] == [count]


@pytest.mark.parametrize(
    ("target", "arrives"),
    [
        (b"http://elsewhere.example" + V1, V1),
        (b"HTTPS://elsewhere.example:81" + V1 + b"?a=%20&b", V1 + b"?a=%20&b"),
        (b"http://elsewhere.example" + V2, V2),
        (b"//elsewhere.example" + V1, b"//elsewhere.example" + V1),
        (b"/v1%2Fmodels%2Fm:predict", b"/v1%2Fmodels%2Fm:predict"),
        (b"/x/.." + V1, b"/x/.." + V1),
    ],
)
async def test_a_client_does_not_choose_the_host(target: bytes, arrives: bytes) -> None:
    """A server gets path and query as they were, under its own name, merged or alone."""
    body = infer(1, parameters={"sequence_id": 1}) if V2 in target else rows_body(1)

    async with merging() as (on, model):
        for _ in range(2):
            await on.ask(body, target, (b"host", b"elsewhere.example")).reply()

        for call in model.calls:
            assert call.target == arrives
            assert (call.header(b"host") or b"").startswith(b"127.0.0.1:")
        assert len(model.calls) == 2


async def test_a_target_with_a_host_shares_calls() -> None:
    async with merging() as (on, model):
        callers = [on.ask(rows_body(1)), on.ask(rows_body(2), b"http://elsewhere.example" + V1)]

        assert [predictions(await caller.reply()) for caller in callers] == [[2], [4]]
        assert sizes(model) == [2]


# Sizes


async def test_a_cut_request_whose_part_fails_gets_one_error() -> None:
    """The other parts are cancelled; other requests are answered."""
    async with merging() as (on, model):
        large = on.ask(rows_body(BAD, *range(99)))
        small = on.ask(rows_body(1))
        reply = await large.reply()
        assert predictions(await small.reply()) == [2]
        await turns(50)

        assert error(reply, 400) == "a bad row"
        assert large.replies() == [reply]
        assert sizes(model)[0] == 32
        assert sum(sizes(model)) < 32 + 32 + 2


async def test_a_large_request_that_a_queue_cannot_hold_leaves_nothing_behind() -> None:
    """The client gets one 503, and its rows count no longer."""
    async with merging(max_queue_rows=70) as (on, model):
        model.gate.clear()
        first = on.ask(rows_body(0))
        await model.called(1)
        queued = on.ask(rows_body(0))
        await turns(20)
        refused = await on.ask(rows_body(*range(100))).reply()
        model.gate.set()
        await first.reply()
        await queued.reply()
        assert predictions(await on.ask(rows_body(1)).reply()) == [2]

        assert error(refused, 503) == "overloaded: the queue of this API is full"
        assert int(refused.headers["retry-after"]) >= 1
        assert sizes(model) == [1, 1, 1]


async def test_a_cut_request_alone_may_exceed_the_limits_of_the_queue() -> None:
    """As any request while nothing is queued; also if two of its parts are sent at once."""
    async with merging(max_batch_rows=32, concurrency=2, max_queue_rows=50) as (on, _):
        reply = await on.ask(rows_body(*range(100))).reply()
        assert predictions(reply) == [2 * row for row in range(100)]


async def test_a_request_whose_parts_would_repeat_too_much_is_not_cut() -> None:
    """Each part has all that is no row: 5 MB in all for a body of 50 KB."""
    async with merging(max_batch_rows=1) as (on, model):
        reply = await on.ask(rows_body(*range(100), junk="x" * 50_000)).reply()

        assert predictions(reply) == [2 * row for row in range(100)]
        assert sizes(model) == [100]


async def test_a_cut_request_counts_with_its_whole_body() -> None:
    """It is kept until the last part is answered, and may have more than rows."""
    body = rows_body(1, 2, 3, junk="x" * 60_000)
    async with merging(max_batch_rows=2, concurrency=1, max_queue_bytes=100_000) as (on, model):
        model.gate.clear()
        first = on.ask(body)
        await model.called(1)
        queued = on.ask(rows_body(4))
        await turns(20)
        refused = on.ask(body)
        await turns(20)
        model.gate.set()

        assert error(await refused.reply(), 503) == "overloaded: the queue of this API is full"
        assert predictions(await first.reply()) == [2, 4, 6]
        assert predictions(await queued.reply()) == [8]


# Neighbours


@pytest.mark.parametrize("leaver", [0, 1, 2])
@pytest.mark.parametrize("running", [False, True])
async def test_a_caller_who_leaves_is_in_nobodys_way(leaver: int, running: bool) -> None:
    """The others are answered; the rows of the one that left are never sent."""
    async with merging() as (on, model):
        model.gate.clear()
        callers: list[Caller] = []
        if not running:
            callers.append(on.ask(rows_body(9)))
            await model.called(1)
        group = [on.ask(rows_body(row)) for row in range(3)]
        await (model.called(1) if running else turns())
        left = group.pop(leaver)
        left.leave()
        model.gate.set()
        replies = await on.replies(callers + group)

        stayed = [row for row in range(3) if row != leaver]
        assert [predictions(reply) for reply in replies[len(callers) :]] == [[2 * row] for row in stayed]
        assert model.bodies()[-1]["instances"] == ([0, 1, 2] if running else stayed)
        assert left.received == b""


async def test_a_caller_who_leaves_takes_all_its_parts_along() -> None:
    """Of four parts one is running, and three are never sent."""
    async with merging() as (on, model):
        model.gate.clear()
        large = on.ask(rows_body(*range(100)))
        await model.called(1)
        large.leave()
        small = on.ask(rows_body(1))
        model.gate.set()

        assert predictions(await small.reply()) == [2]
        assert sizes(model) == [32, 1]
