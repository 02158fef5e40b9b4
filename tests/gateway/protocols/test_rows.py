"""KServe V1 and TensorFlow Serving REST: requests that are read, cut and merged."""

import json
import re
import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import mutated
from tests.gateway.protocols.parts import join_by_rows
from tests.gateway.protocols.rows_stage import (
    AWKWARD,
    COMMAS,
    GOOD_BODIES,
    NAMES,
    OTHERS,
    ROW_LISTS,
    ROWS,
    columns_body,
    fields,
    listed,
    parts,
    predict,
    serve_columns,
    serve_rows,
)
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.rows import RowsRequest, RowsWire, as_rows, error_body, parse_rows
from uncork_gateway.protocols.wire import Content, Unmergeable

V1 = RowsWire(add_batch_id=True)
TFS = RowsWire(add_batch_id=False)
JSON_HEADERS = ((b"content-type", b"application/json"),)


def answers(
    wire: RowsWire, requests: Sequence[RowsRequest], serve: Callable[[Content], Content]
) -> list[dict[str, bytes]]:
    replies = wire.split(serve(wire.merge(requests)), requests)
    rendered = [
        wire.render(reply, request, batch_id="b") for reply, request in zip(replies, requests, strict=True)
    ]
    assert {each.headers for each in rendered} == {JSON_HEADERS}
    return [fields(each.body) for each in rendered]


def answer_in_parts(
    request: RowsRequest, most_rows: int, serve: Callable[[Content], Content]
) -> dict[str, bytes]:
    """Return the answer of a request whose parts are called separately."""
    cut = TFS.cut(request, most_rows)
    assert sum(part.rows for part in cut) == request.rows
    assert all(1 <= part.rows <= most_rows for part in cut)
    joined = join_by_rows(TFS.join, [TFS.split(serve(TFS.merge([part])), [part])[0] for part in cut])
    return fields(TFS.render(joined, request, batch_id="b").body)


@given(bodies=st.lists(ROW_LISTS, min_size=1, max_size=5), comma=COMMAS, others=OTHERS, explain=st.booleans())
def test_rows_that_share_a_call_get_what_they_would_get_alone(
    bodies: list[list[bytes]], comma: bytes, others: bytes, explain: bool
) -> None:
    requests = [parse_rows(b"{" + others + b'"instances" :' + listed(rows, comma) + b"}") for rows in bodies]

    got = answers(V1, requests, lambda call: serve_rows(call, explain))

    for answer, rows, request in zip(got, bodies, requests, strict=True):
        [alone] = answers(V1, [request], lambda call: serve_rows(call, explain))
        assert as_rows(request) == rows
        assert parts(answer["predictions"]) == [predict(row) for row in rows]
        assert answer == alone
        assert list(answer)[:3] == ["message", "batchId", "predictions"]
        assert (answer["message"], answer["batchId"], answer["version"]) == (b'""', b'"b"', b'"1.0"')


@given(names=NAMES, data=st.data())
def test_columns_that_share_a_call_get_what_they_would_get_alone(
    names: list[bytes], data: st.DataObject
) -> None:
    """Columns are joined by name, in any order, and the answers are split."""
    row = st.tuples(*(ROWS for _ in names))
    bodies = data.draw(st.lists(st.lists(row, min_size=1, max_size=3), min_size=1, max_size=4))
    requests = []
    for rows in bodies:
        order = data.draw(st.permutations(range(len(names))))
        requests.append(
            parse_rows(columns_body([names[at] for at in order], [[row[at] for at in order] for row in rows]))
        )

    for answer, rows in zip(answers(TFS, requests, serve_columns), bodies, strict=True):
        outputs = fields(answer["outputs"])
        assert parts(outputs.pop("\0constant")) == [b"1e400"]
        assert {name: parts(column) for name, column in outputs.items()} == {
            json.loads(name): [predict(row[at]) for row in rows] for at, name in enumerate(names)
        }
    assert [fields(row) for request in requests for row in as_rows(request)] == [
        dict(zip(map(json.loads, names), row, strict=True)) for rows in bodies for row in rows
    ]


@given(rows=st.lists(ROWS, min_size=1, max_size=7), most_rows=st.integers(1, 4), explain=st.booleans())
def test_a_request_in_parts_is_answered_as_if_it_were_whole(
    rows: list[bytes], most_rows: int, explain: bool
) -> None:
    """Values for the whole request appear once."""
    whole = parse_rows(b'{"instances":' + listed(rows) + b"}")
    columns = parse_rows(columns_body([b'"x"', b'"y"'], [(row, b"1") for row in rows]))

    assert (
        answer_in_parts(whole, most_rows, lambda call: serve_rows(call, explain))
        == (answers(TFS, [whole], lambda call: serve_rows(call, explain))[0])
    )
    in_parts = fields(answer_in_parts(columns, most_rows, serve_columns)["outputs"])
    assert [parts(in_parts["x"]), parts(in_parts["y"])] == [
        list(map(predict, rows)),
        [predict(b"1")] * len(rows),
    ]


def test_a_request_that_is_not_too_large_is_not_cut() -> None:
    """A request's size is that of its body; a part's is smaller."""
    body = b'{"instances": [[1, 2], [3, 4]]}'
    request = parse_rows(body)

    assert TFS.cut(request, 2) == [request]
    assert request.size_bytes == len(body)
    assert [part.size_bytes for part in TFS.cut(request, 1)] == [len(b"[1, 2]")] * 2


@pytest.mark.parametrize("text", AWKWARD, ids=lambda text: ascii(text[:20]))
def test_awkward_values_are_sent_on_as_they_came(text: bytes) -> None:
    row = parse_rows(b'{"context":' + text + b',"instances":[' + text + b"]}")
    column = parse_rows(b'{"inputs":{"x":[' + text + b"]}}")

    assert V1.merge([row, row]).body == b'{"instances":[%b,%b],"context":%b}' % (text, text, text)
    assert V1.merge([column]).body == b'{"inputs":{"x":[' + text + b"]}}"
    [reply] = TFS.split(Content(b'{"predictions":[' + text + b"]}"), [row])
    assert TFS.render(reply, row, batch_id="b").body == b'{"predictions":[' + text + b"]}"


@pytest.mark.parametrize("before", [b"", b"NaN, "])
def test_nesting_without_end_is_refused(before: bytes) -> None:
    """A body of nothing but brackets gets 400 and affects no other request."""
    with pytest.raises(BadRequest, match="the body is nested too deeply"):
        parse_rows(b'{"instances": [' + before + b"[" * 1_000_000)


@given(body=st.binary(max_size=30) | mutated(GOOD_BODIES))
def test_whatever_is_accepted_shifts_no_neighbour(body: bytes) -> None:
    """Any body gets 400, or adds exactly the counted rows."""
    try:
        request = parse_rows(body)
    except (BadRequest, Unmergeable):
        return
    value = fields(V1.merge([request, request]).body)[request.member]
    merged = [value] if request.names is None else list(fields(value).values())

    assert [parts(each) for each in merged] == [list(map(bytes, each)) * 2 for each in request.lists]
    for row in as_rows(request):
        json.loads(row, parse_int=str)


def test_only_the_last_of_two_members_of_one_name_counts() -> None:
    """The last value is both the key and the value sent, so nobody gets another's answer."""
    twice = parse_rows(
        b'{"signature_name": "a", "instances": [1], "instances": [2, 3], "signature\\u005fname": "b"}'
    )
    with_nan = parse_rows(b'{"signature_name": "a", "instances": [NaN], "signature_name": "b"}')

    assert twice.key == with_nan.key == parse_rows(b'{"instances": [1], "signature_name": "b"}').key
    assert V1.merge([twice, with_nan]).body == b'{"instances":[2,3,NaN],"signature_name":"b"}'


def test_requests_that_must_not_share_a_call_have_different_keys() -> None:
    """Form, column names and other members must be equal; the order of members does not matter."""
    bodies = [
        b'{"instances": [1]}',
        b'{"inputs": [1]}',
        b'{"inputs": {"x": [1]}}',
        b'{"inputs": {"y": [1]}}',
        b'{"inputs": {"x": [1], "y": [1]}}',
        b'{"instances": [1], "signature_name": "a"}',
        b'{"instances": [1], "signature_name": "b"}',
        b'{"instances": [1], "signature_name": null}',
        b'{"instances": [1], "parameters": 1}',
        b'{"instances": [1], "parameters": 1.0}',
        b'{"instances": [1], "parameters": "1"}',
        b'{"instances": [1], "parameters": "\\u0031"}',
        b'{"instances": [1], "parameters": NaN}',
    ]
    assert len({parse_rows(body).key for body in bodies}) == len(bodies)
    assert (
        parse_rows(b'{"a": 1, "instances": [1], "b": 2}').key
        == parse_rows(b'{"b": 2, "a": 1, "instances": [3.5]}').key
    )


ALIKE = [
    (b"1", b"2.5", b"-1e400", b"NaN"),
    (b'"a"', b'"[,{"'),
    (b"true", b"false"),
    (b"null",),
    (b"[1, 2]", b"[ -0.5,NaN]"),
    (b"[1, 2, 3]",),
    (b"[]", b"[ ]"),
    (b"[1]", b"[ NaN ]"),
    (b"[[1], []]", b"[[2],[]]"),
    (b"[[1, 2], [3, 4]]", b"[ [1.5,2],[3,4] ]"),
    (b"[[1], [2], [3], [4]]",),
    (b"[true, false]", b"[false, false]"),
    (b'["a", "b,["]', b'["", ""]'),
    (b'["a"]',),
    (b'{"x": [1, 2], "y": "a"}', b'{"y": "bc", "x": [3,4]}'),
    (b'{"x": [1, 2, 3], "y": "a"}',),
    (b'{"x": [1, 2]}',),
    (b'[{"b64": "AA=="}]', b'[ {"b64": "BBBB"} ]', b'[{"b64":"' + b"A" * 9000 + b'"}]'),
    (b'{"a":[1,"x"],"b":{"c":[[1]]}}', b'{"b":{"c":[[2]]}, "a":[ 3 ,"y,]}"]}'),
    (b'{"a":[1,"x"]}',),
    (b'{"a":[1]}',),
    (b'{"a":{"b":1}}',),
    (b'{"a":{"b":"1"}}',),
    (b'{"a":1}',),
    (b'{"b":1}',),
    (b'["a",1,null]', b'["b","c",{"d":[1,2]}]', b'["a",{"b":[1,2,3]},[[]]]'),
    (b"[true,1,2]",),
    (b'[["a"],["b","c"]]', b'[["a"],["b"]]'),
    (b'[{"a":"b"}]',),
    # What is deep or late does not count, but for the number of commas.
    (b"[" * 100 + b'"a"' + b"]" * 100, b"[" * 100 + b"true" + b"]" * 100),
    (b'["a"' + b',"a"' * 9000 + b"]", b'["b"' + b',"b"' * 9000 + b"]"),
    (b'["a"' + b',"a"' * 9001 + b"]",),
]


def test_rows_share_a_call_if_they_are_of_one_kind_and_shape() -> None:
    """Other rows could not form one array, or would change in it: true would be 1.

    A list has the form of its first element.
    """
    keys = [{parse_rows(b'{"instances": [%b]}' % row).key for row in rows} for rows in ALIKE]

    assert [len(each) for each in keys] == [1] * len(ALIKE)
    assert len(set().union(*keys)) == len(ALIKE)


def test_a_row_of_another_kind_keeps_its_request_apart() -> None:
    """In one array with it, the numbers of others would be texts, and their booleans numbers."""

    def keys(*bodies: bytes) -> set[object]:
        return {parse_rows(b'{"instances": [%b]}' % rows).key for rows in bodies}

    assert len(keys(b"[1, 2]", b"[1, 2.5], [ -3,NaN]", b"[1,2],[3,4],[-Infinity,1e9]")) == 1
    assert len(keys(b"true", b"true, false, true")) == 1
    assert len(keys(b"[null, 1]", b'[null, 1], [null, "a"]')) == 1
    apart = (b'[1, 2], [3, "a"]', b"[1, 2], [true, false]", b"[1, 2], null", b"[1, 2], [3]")
    assert len(keys(b"[1, 2]", *apart)) == 1 + len(apart)
    assert len(keys(b"[1]", b"[2], [NaN]")) == 1
    assert len(keys(b"[1]", b"[ ]", b"[1], [ ]")) == 3
    assert len(keys(b"true", b"true, 2", b'true, ";"')) == 3


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (b"[]", "the body has no rows"),
        (b'{"x": [], "y": []}', "the body has no rows"),
        (b"{}", "'inputs' must be a list of rows, or an object with a list"),
        (b"1", "'inputs' must be a list of rows, or an object with a list"),
        (b'{"x": [1], "y": 1}', "'inputs' must be a list of rows, or an object with a list"),
        (b'{"x": [1], "y": [1, 2]}', "equal lengths, got lengths from 1 to 2"),
    ],
)
def test_inputs_without_rows_go_alone(inputs: bytes, says: str) -> None:
    """TensorFlow Serving accepts them for some models."""
    with pytest.raises(Unmergeable, match=re.escape(says)):
        V1.parse(Content(b'{"inputs": %b}' % inputs))


@given(detail=st.text() | st.just("\ud800"))
def test_an_error_says_what_was_wrong(detail: str) -> None:
    assert json.loads(error_body(detail)) == {"error": detail}


@given(row=ROWS)
def test_every_row_has_a_form(row: bytes) -> None:
    one, other = (parse_rows(b'{"instances": [%b]}' % each).key for each in (row, b" " + row))
    assert hash(one) == hash(other)


def test_the_form_of_a_text_takes_no_memory_for_each_of_its_escapes() -> None:
    """A text of 64 MiB would fill the memory of a proxy."""
    request = parse_rows(b'{"instances": ["%b"]}' % (rb"\"" * 100_000))

    tracemalloc.start()
    key = request.key
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert key == parse_rows(b'{"instances": ["a"]}').key
    assert peak_bytes < 10 * request.size_bytes


def test_names_that_would_be_repeated_too_often_are_refused() -> None:
    """A few bytes must not take up gigabytes."""
    rows = 20_000
    body = b'{"inputs": {"%b": [%b]}}' % (b"x" * 10_000, b",".join([b"1"] * rows))

    with pytest.raises(BadRequest, match="the names of 1 column for 20000 rows take 200060000 bytes"):
        as_rows(parse_rows(body))
    assert len(as_rows(parse_rows(body.replace(b"x" * 9990, b"")))) == rows


def test_names_may_be_repeated_to_a_multiple_of_the_body() -> None:
    """A megabyte is accepted from every request, and more from larger ones."""
    body = b'{"inputs": {"%b": [%b]}}'

    small = parse_rows(body % (b"x" * 1000, b",".join([b"1"] * 2000)))
    with pytest.raises(BadRequest, match="at most 1048576 are accepted"):
        as_rows(small)
    assert len(as_rows(parse_rows(body % (b"x" * 1000, b",".join([b"1" * 50] * 2000))))) == 2000


def test_values_that_only_the_lenient_parser_reads_are_limited() -> None:
    """It takes 25 bytes of memory for each byte of such a body."""
    body = b'{"instances": [NaN, "%b", [%b]]}'

    with pytest.raises(BadRequest, match=r"with NaN, .* may have at most 1048576 values"):
        parse_rows(body % (b"", b"[]," * 2**19 + b"[]"))
    assert parse_rows(body % (b"[," * 2**20, b"")).rows == 3
