"""Requests with rows of several groups: parts share batches with others, and their results are joined."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.client import JSON, Client
from tests.gateway.stage import RULES, Stage, detail
from uncork_gateway.codecs import codec_of, grouping
from uncork_gateway.dialects import Native, Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import HandlerFailed
from uncork_gateway.protocols.tensor_rows import output_tensors
from uncork_gateway.requests.parts import joined
from uncork_workers.wire.forms import ColumnsForm, ListForm, RecordsForm, TensorForm
from uncork_workers.wire.schema import ApiDescription
from uncork_workers.wire.tensors import encoded, join_columns

ORDERS = st.permutations(range(6))
CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True).map(sorted)


def cut(order: Sequence[int], cuts: Sequence[int]) -> list[list[int]]:
    """Return the rows of each part; the rows of a part are in order, as the gateway makes them."""
    ends = [0, *cuts, len(order)]
    return [sorted(order[start:end]) for start, end in itertools.pairwise(ends)]


def texts(values: Sequence[Any]) -> bytes:
    return json.dumps(values)[1:-1].encode()


def floats(rows: Sequence[int], *inner: int) -> bytes:
    return b"".join([encoded([float(row)] * int(np.prod(inner)), "FP32") for row in rows])


def names(rows: Sequence[int]) -> list[str]:
    return [f'row {row}, "[{row}]"' for row in rows]


RESULTS: dict[str, Any] = {
    "json": lambda rows: HandlerResult(200, texts([{"n": row, "s": names([row])} for row in rows])),
    "list": lambda rows: HandlerResult(200, texts([[row, -row] for row in rows]), ListForm("INT64", (2,))),
    "records": lambda rows: HandlerResult(
        200, texts([{"n": row} for row in rows]), RecordsForm((("n", ListForm("INT64", ())),))
    ),
    "tensor": lambda rows: HandlerResult(200, floats(rows, 2, 2), TensorForm("FP32", (2, 2))),
    "texts": lambda rows: HandlerResult(200, encoded(names(rows), "BYTES"), TensorForm("BYTES", ())),
    "columns": lambda rows: HandlerResult(
        200,
        join_columns([floats(rows, 3), encoded(names(rows), "BYTES"), texts(list(rows))]),
        ColumnsForm(
            (("a", TensorForm("FP32", (3,))), ("b", TensorForm("BYTES", ())), ("c", ListForm("INT64", ())))
        ),
    ),
    "csv": lambda rows: HandlerResult(
        200,
        b"n,s\r\n" + b"".join([b'%d,"a\r\n""%d"""\r\n' % (row, row) for row in rows]),
        content_type="text/csv",
    ),
}


@given(order=ORDERS, cuts=CUTS, kind=st.sampled_from(sorted(RESULTS)))
def test_joined_results_are_those_of_the_whole(order: list[int], cuts: list[int], kind: str) -> None:
    parts = cut(order, cuts)
    found = joined([RESULTS[kind](rows) for rows in parts], parts)
    whole = RESULTS[kind](range(6))
    if kind in ("json", "list", "records"):
        assert json.loads(b"[%b]" % found.body) == json.loads(b"[%b]" % whole.body)
        found = msgspec.structs.replace(found, body=whole.body)
    elif kind == "columns":
        wanted = output_tensors(whole.body, whole.form, rows=6, binary=lambda name: True)
        assert output_tensors(found.body, found.form, rows=6, binary=lambda name: True) == wanted
        found = msgspec.structs.replace(found, body=whole.body)
    assert found == whole


@given(order=ORDERS, cuts=CUTS, kinds=st.tuples(st.sampled_from(["tensor", "list"]), st.just("columns")))
def test_results_of_different_types_are_joined_as_json(
    order: list[int], cuts: list[int], kinds: tuple[str, str]
) -> None:
    """As in a batch of a handler that returns a list: the rows need not be alike."""
    parts = cut(order, cuts)
    found = joined([RESULTS[kinds[at % 2]](rows) for at, rows in enumerate(parts)], parts)
    assert found.form is None
    rows = json.loads(b"[%b]" % found.body)
    for at, part in enumerate(parts):
        for number in part:
            if at % 2:
                assert rows[number] == {"a": [number] * 3, "b": names([number])[0], "c": number}
            elif kinds[0] == "list":
                assert rows[number] == [number, -number]
            else:
                assert rows[number] == [[number] * 2] * 2


def test_objects_keep_the_types_in_which_their_parts_agree() -> None:
    """A part may share its batch with rows of another client, which leave some columns without a type."""
    vector, number = ("v", ListForm("FP32", ())), ("n", ListForm("INT64", ()))
    results = [
        HandlerResult(200, b'{"v":0.5,"n":1}', RecordsForm((vector, number))),
        HandlerResult(200, b'{"v":1.5,"n":2}', RecordsForm((vector,))),
    ]

    whole = HandlerResult(200, b'{"v":1.5,"n":2},{"v":0.5,"n":1}', RecordsForm((vector,)))
    assert joined(results, [[1], [0]]) == whole


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (("text/csv", b"a\r\n1\r\n"), ("", b"1"), "several media types"),
        (("text/csv", b"a\r\n1\r\n"), ("text/csv", b"b\r\n1\r\n"), "cannot be joined"),
        *[
            (("text/csv", b"a\r\n1\r\n"), ("text/csv", other), "cannot be joined")
            for other in (b"", b"a", b"a\r\n", b"a\r\n1\r\n2\r\n", b'a\r\n1\r\n2"', b'"a\r\n1\r\n')
        ],
        (("image/png", b"1"), ("image/png", b"2"), "results in image/png .* cannot be joined"),
    ],
)
def test_what_cannot_be_joined_is_the_handlers_fault(one: Any, other: Any, says: str) -> None:
    results = [HandlerResult(200, body, content_type=kind) for kind, body in (one, other)]
    for each in (results, results[::-1]):
        with pytest.raises(HandlerFailed, match=says):
            joined(each, [[0], [1]])


def test_columns_of_parts_may_come_in_another_order() -> None:
    bodies = b'a,"b\n"\r\n1,\r\n', b'"b\n",a\r\n"x\r\ny",2\r\n"p,q",3\r\n'

    found = joined([HandlerResult(200, body, content_type="text/csv") for body in bodies], [[1], [0, 2]])

    assert found.body == b'a,"b\n"\r\n2,"x\r\ny"\r\n1,\r\n3,"p,q"\r\n'


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_last_line_of_a_part_need_not_end(end: bytes) -> None:
    """As in RFC 4180. The result of the whole has a line for each row."""
    bodies = b"a,b\r\n1,2" + end, b"a,b\r\n3,4\r\n5,6" + end

    found = joined([HandlerResult(200, body, content_type="text/csv") for body in bodies], [[1], [0, 2]])

    assert [line.split(b",") for line in found.body.splitlines()] == [
        [b"a", b"b"],
        [b"3", b"4"],
        [b"1", b"2"],
        [b"5", b"6"],
    ]


API = ApiDescription(name="echo", route="/", input={"kind": "json"}, group_by="g")


def stage(**arguments: Any) -> Stage:
    return Stage(dialect=Rest(codec_of(API), kserve=False), grouping=grouping(API), **arguments)


def body(*groups: Any) -> bytes:
    rows = [{"g": group} for group in groups]
    return msgspec.json.encode({"instances": rows})


async def test_one_part_that_fails_is_the_answer_and_the_others_are_withdrawn() -> None:
    on = stage()
    on.runner.reply = lambda sent: HandlerResult(422, b"no b") if b'"b"' in sent else HandlerResult(200, sent)
    reply = await on.reply(body("a", "b", "c"))
    assert (reply.status, json.loads(reply.body)) == (422, {"error": "no b"})
    assert on.dispatcher.unanswered == 0
    assert on.counted(422) == 1

    on.runner.error = HandlerFailed("the whole batch failed")
    reply = await on.reply(body("a", "b", "c"))
    assert reply.status == 500
    assert on.dispatcher.unanswered == 0


@pytest.mark.parametrize("status", [200, 201])
async def test_the_complete_response_to_one_part_is_not_the_answer_to_all(status: int) -> None:
    """The worker sends a Response for the only row of a part, but a request of several rows takes none."""
    api = msgspec.structs.replace(API, input={"kind": "dataframe", "columns": ["g"]})
    on = Stage(dialect=Native(codec_of(api)), grouping=grouping(api))
    on.runner.reply = lambda sent: HandlerResult(status, sent, content_type="application/json")
    says = detail(await on.reply(b'[{"g": "a"}, {"g": "b"}]'), 500)
    assert says.endswith("cannot be joined")
    assert on.dispatcher.unanswered == 0


async def test_a_part_that_is_shed_is_the_answer_and_the_others_are_withdrawn() -> None:
    on = stage(rules=replace(RULES, max_queue_rows=2))
    on.runner.gate.clear()
    running = on.post(Client(body("z"), headers=[JSON]))
    await asyncio.sleep(0)
    reply = await on.reply(body("a", "b", "c"))
    assert (reply.status, "retry-after" in reply.headers) == (503, True)
    assert on.dispatcher.unanswered == 1
    on.runner.gate.set()
    await running
    assert len(on.runner.batches) == 1
