"""What callers of one call must not get: values of each other, and answers to a part of their rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.backends.model_servers.fake_server import Call
from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.client import JSON, Reply
from tests.gateway.protocols import v2_bodies
from tests.gateway.protocols.v2_bodies import Written, ints
from tests.gateway.proxy_stage import V1, V2, error, infer, merging, rows_body
from uncork_gateway.protocols.wire import Content

Model = Callable[[list[Any]], Any]
TF = b"/v1/models/m/versions/1:predict"


def rows_of(call: Call) -> list[Any]:
    body = json.loads(call.body)
    if call.target != V2:
        rows: list[Any] = body.get("instances") or body["inputs"]
        return rows
    [tensor] = v2_bodies.read(Content(call.body, call.headers), "inputs")[1]
    return [int(item.text) for item in tensor.items]


def answers(call: Call, model: Model) -> Answer:
    got = model(rows_of(call))
    if call.target == V2:
        outputs = [each if isinstance(each, Written) else ints(*each) for each in got]
        return Answer(v2_bodies.body("outputs", outputs, model_name="m").body, 200, (JSON,))
    return Answer(json.dumps(got).encode(), 200, (JSON,))


def outcome(reply: Reply) -> Any:
    """Return what a client reads in a 200."""
    assert reply.status == 200, reply
    body = json.loads(reply.body)
    if "outputs" in body and isinstance(body["outputs"], list) and "name" in str(body):
        return [(each["shape"], each["data"]) for each in body["outputs"]]
    return {name: value for name, value in body.items() if name not in ("message", "batchId")}


def columns(*values: int) -> bytes:
    return json.dumps({"inputs": list(values)}).encode()


@pytest.mark.parametrize(
    ("target", "ask", "model", "expected"),
    [
        (V2, infer, lambda rows: [rows[:1]], [[([1], [1])], [([1], [2])]]),
        (V2, infer, lambda rows: [rows[:1], [7]], [[([1], [1]), ([1], [7])], [([1], [2]), ([1], [7])]]),
        (TF, columns, lambda rows: {"outputs": rows[:1]}, [{"outputs": [1]}, {"outputs": [2]}]),
        (
            TF,
            columns,
            lambda rows: {"outputs": {"y": rows[:1], "z": [7]}},
            [{"outputs": {"y": [1], "z": [7]}}, {"outputs": {"y": [2], "z": [7]}}],
        ),
        (
            V1,
            rows_body,
            lambda rows: {"predictions": rows, "who": {"rows": rows}["rows"][:1] * 3},
            [{"predictions": [1], "who": [1] * 3}, {"predictions": [2], "who": [2] * 3}],
        ),
    ],
)
async def test_an_answer_to_the_first_row_is_for_its_caller_only(
    target: bytes, ask: Callable[..., bytes], model: Model, expected: list[Any]
) -> None:
    """The server answers a merged call for one row; each request is sent again, alone."""
    async with merging(lambda call: answers(call, model)) as (on, server):
        replies = await on.replies([on.ask(ask(1), target), on.ask(ask(2), target)])

        assert [outcome(reply) for reply in replies] == expected
        assert len(server.calls) == 3


WHOLE: list[tuple[bytes, Callable[..., bytes], int, Model]] = [
    # Sums, scalars, objects, counts: not one value for each row.
    (V2, infer, 2, lambda rows: [[sum(rows)]]),
    (V2, infer, 2, lambda rows: [[len(rows)]]),
    (V2, infer, 2, lambda rows: [Written(name="x", datatype="INT64", inner=[], form="flat", items=["7"])]),
    (V2, infer, 2, lambda rows: [rows, [sum(rows)]]),
    (V2, infer, 1, lambda rows: [rows, ints(1, 2, inner=[2], name="z")]),
    (V2, infer, 2, lambda rows: [rows, ints(1, 2, name="z")]),
    (V2, infer, 2, lambda rows: [rows] if len(rows) > 2 else []),
    (V2, infer, 2, lambda rows: [rows[1:]]),
    (V1, rows_body, 2, lambda rows: {"predictions": sum(rows)}),
    (V1, rows_body, 2, lambda rows: {"predictions": {"sum": sum(rows)}}),
    (V1, rows_body, 2, lambda rows: {"predictions": [sum(rows)]}),
    (V1, rows_body, 2, lambda rows: {"predictions": rows, "sum": sum(rows)}),
    (V1, rows_body, 2, lambda rows: {"predictions": rows, "two": ["a", "b"]}),
    (V1, rows_body, 2, lambda rows: {"predictions": rows} if len(rows) > 2 else {"error": "too few"}),
    (V1, rows_body, 2, lambda rows: {"predictions": rows, **({"few": 1} if rows[0] > 2 else {})}),
    (TF, columns, 2, lambda rows: {"outputs": sum(rows)}),
    (TF, columns, 2, lambda rows: {"outputs": {"y": rows, "sum": [sum(rows)]}}),
    (TF, columns, 1, lambda rows: {"outputs": {"y": rows, "z": [7]}}),
]


@pytest.mark.parametrize("rows", [(1, 2, 3, 4), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize(("target", "ask", "most", "model"), WHOLE)
async def test_a_cut_request_gets_what_it_would_have_got_whole(
    target: bytes, ask: Callable[..., bytes], most: int, model: Model, rows: tuple[int, ...]
) -> None:
    """If the replies to its parts cannot be joined, it is sent once more, whole and unchanged."""
    whole = ask(*rows)
    async with merging(lambda call: answers(call, model), max_batch_rows=most) as (on, server):
        reply = await on.ask(whole, target, (b"x-me", b"1")).reply()

        call = Call(b"POST", target, (), whole, 0)
        if len(server.calls) > len(rows) // most + len(rows) % most:
            assert (server.calls[-1].body, server.calls[-1].header(b"x-me")) == (whole, b"1")
            assert reply.body == answers(call, model).body
            assert [call.body for call in server.calls].count(whole) == 1
        else:
            assert outcome(reply) == json_of(answers(call, model).body)
        assert reply.headers["x-batch-size"]


def json_of(body: bytes) -> Any:
    return outcome(Reply(200, {}, body))


async def test_a_request_that_is_not_repeated_gets_502() -> None:
    """Its parts have run."""
    async with merging(
        lambda call: answers(call, lambda rows: [[sum(rows)]]), max_batch_rows=2, idempotent=False
    ) as (on, server):
        assert "the parts of a request" in error(await on.ask(infer(1, 2, 3), V2).reply(), 502)
        assert len(server.calls) == 2


@pytest.mark.parametrize("idempotent", [True, False])
async def test_values_that_may_be_for_all_are_for_each_row_if_the_server_does_not_say(
    idempotent: bool,
) -> None:
    """A server may refuse the whole request, because it is larger than a call may be."""

    def script(call: Call) -> Answer:
        if len(rows_of(call)) > 2:
            return Answer(b'{"error": "too many"}', 400, (JSON,))
        return answers(call, lambda rows: [rows, ints(*[7] * len(rows), name="z")])

    async with merging(script, max_batch_rows=2, idempotent=idempotent) as (on, server):
        reply = await on.ask(infer(1, 2, 3, 4), V2).reply()

        assert outcome(reply) == [([4], [1, 2, 3, 4]), ([4], [7] * 4)]
        assert len(server.calls) == 2 + idempotent


async def test_a_whole_request_that_fails_gets_that_answer() -> None:
    """It is not sent a third time."""

    def script(call: Call) -> Answer:
        if len(rows_of(call)) > 2:
            return Answer(b"too many", 413)
        return answers(call, lambda rows: {"predictions": sum(rows)})

    async with merging(script, max_batch_rows=2) as (on, server):
        reply = await on.ask(rows_body(1, 2, 3)).reply()

        assert (reply.status, reply.body) == (413, b"too many")
        assert [rows_of(call) for call in server.calls].count([1, 2, 3]) == 1


async def test_a_caller_who_leaves_while_its_request_is_sent_whole_is_in_nobodys_way() -> None:
    async with merging(
        lambda call: answers(call, lambda rows: {"predictions": [sum(rows)] * (len(rows) == 1)}),
        max_batch_rows=2,
    ) as (on, server):
        large = on.ask(rows_body(1, 2, 3))
        while [1, 2, 3] not in map(rows_of, server.calls):
            await server.called(len(server.calls) + 1)
        large.leave()

        assert outcome(await on.ask(rows_body(4)).reply()) == {"predictions": [4]}


# Failures


SECRET = (b"set-cookie", b"who=alice")


def echoes(status: int, *headers: tuple[bytes, bytes]) -> Callable[[Call], Answer]:
    """A server that fails with the rows in its reply."""

    def script(call: Call) -> Answer:
        rows = json.dumps(rows_of(call)).encode()
        return Answer(b"cannot run " + rows, status, ((b"x-rows", rows), SECRET, *headers))

    return script


@pytest.mark.parametrize("status", [201, 202, 307, 401, 403, 404, 409, 418])
async def test_an_answer_to_all_is_asked_for_again_alone(status: int) -> None:
    """Each client gets what the server answers to its own request, headers included."""
    async with merging(echoes(status, (b"location", b"/there"))) as (on, server):
        replies = await on.replies([on.ask(rows_body(row)) for row in (1, 2, 3)])

        assert [(reply.status, reply.body) for reply in replies] == [
            (status, b"cannot run [%d]" % row) for row in (1, 2, 3)
        ]
        assert [reply.headers["x-rows"] for reply in replies] == ["[1]", "[2]", "[3]"]
        assert {reply.headers["location"] for reply in replies} == {"/there"}
        assert len(server.calls) == 4


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_an_error_of_a_busy_server_has_nobodys_rows(status: int, idempotent: bool) -> None:
    """It is not asked again; clients learn the status, and when to try again."""
    async with merging(echoes(status, (b"retry-after", b"9")), idempotent=idempotent) as (on, server):
        for reply in await on.replies([on.ask(rows_body(row)) for row in (11, 22)]):
            assert error(reply, status) == (
                f"the model server returned {status} to a call with the requests of several clients"
            )
            assert reply.headers["retry-after"] == "9"
            assert not {"x-rows", "set-cookie"} & reply.headers.keys()
        assert len(server.calls) == 1


@pytest.mark.parametrize(("count", "idempotent"), [(32, True), (2, False)])
@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_an_error_of_several_requests_has_nobodys_rows(
    status: int, count: int, idempotent: bool
) -> None:
    """The search ends before each request was alone."""
    async with merging(echoes(status), idempotent=idempotent) as (on, _):
        for row, reply in enumerate(await on.replies([on.ask(rows_body(at)) for at in range(count)])):
            assert reply.status == status
            assert reply.body in (
                b"cannot run [%d]" % row,
                b'{"error":"the model server returned %d to a call with the requests of several clients"}'
                % status,
            )
            assert reply.headers.get("x-rows", f"[{row}]") == f"[{row}]"


@pytest.mark.parametrize("status", [200, 404])
async def test_what_must_not_be_repeated_gets_nobodys_rows(status: int) -> None:
    async with merging(echoes(status, (b"location", b"/there")), idempotent=False) as (on, server):
        for reply in await on.replies([on.ask(rows_body(row)) for row in (11, 22)]):
            text = error(reply, 502 if status == 200 else status)
            assert "of several clients" in text
            assert "11" not in text
            assert "set-cookie" not in reply.headers
        assert len(server.calls) == 1


@pytest.mark.parametrize("status", [307, 404, 500])
async def test_an_error_of_one_request_is_relayed_with_its_headers(status: int) -> None:
    async with merging(echoes(status, (b"location", b"/there"))) as (on, _):
        reply = await on.ask(rows_body(1)).reply()

        assert (reply.status, reply.body) == (status, b"cannot run [1]")
        assert {"location": "/there", "set-cookie": "who=alice", "x-rows": "[1]"}.items() <= (
            reply.headers.items()
        )
