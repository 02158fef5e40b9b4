"""V2 requests that share a call get the answers they would get alone."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import mutated
from tests.gateway.protocols.parts import join_by_rows
from tests.gateway.protocols.v2_bodies import HEADER, Written, ints, mergeable, read, request, serve
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Content, Unmergeable

WIRE = V2Wire()
FORMS = st.lists(st.sampled_from(["flat", "nested"]), min_size=3, max_size=3)
X = b'{"name":"x","shape":[1],"datatype":"INT64","data":[1]}'


@given(inputs=mergeable(), forms=FORMS, with_bias=st.booleans(), data=st.data())
def test_each_gets_what_it_would_have_got_alone(
    inputs: list[list[Written]], forms: list[str], with_bias: bool, data: st.DataObject
) -> None:
    """For all datatypes, shapes and forms; each answer has its request's id, if any."""
    ids = data.draw(st.lists(st.none() | st.text(max_size=3), min_size=len(inputs), max_size=len(inputs)))
    contents = [
        request(*tensors, **({} if id_ is None else {"id": id_}))
        for tensors, id_ in zip(inputs, ids, strict=True)
    ]
    requests = [WIRE.parse(content) for content in contents]
    outputs = forms[: len(inputs[0])]

    replies = WIRE.split(serve(WIRE.merge(requests), outputs, with_bias=with_bias), requests)

    assert len({one.key for one in requests}) == 1
    for one, content, reply in zip(requests, contents, replies, strict=True):
        alone = serve(content, outputs, with_bias=with_bias)
        assert read(WIRE.render(reply, one, batch_id="b"), "outputs") == read(alone, "outputs")
        assert one.rows == read(content, "inputs")[1][0].shape[0]
        assert one.size_bytes == len(content.body)


@given(inputs=mergeable(least_rows=3), forms=FORMS, most=st.integers(1, 3))
def test_a_cut_request_gets_what_it_would_have_got_whole(
    inputs: list[list[Written]], forms: list[str], most: int
) -> None:
    content = request(*inputs[0], id="a")
    whole = WIRE.parse(content)
    neighbours = [WIRE.parse(request(*tensors)) for tensors in inputs[1:]]
    outputs, with_bias = forms[: len(inputs[0])], most > 1

    parts = WIRE.cut(whole, most)
    calls = [[part] for part in parts[:-1]] + [[parts[-1], *neighbours]]
    replies = [WIRE.split(serve(WIRE.merge(call), outputs, with_bias=with_bias), call)[0] for call in calls]

    assert [part.rows for part in parts[:-1]] == [min(most, whole.rows)] * (len(parts) - 1)
    assert sum(part.rows for part in parts) == whole.rows
    assert {part.key for part in parts} == {whole.key}
    rendered = WIRE.render(join_by_rows(WIRE.join, replies), whole, batch_id="b")
    assert read(rendered, "outputs") == read(serve(content, outputs, with_bias=with_bias), "outputs")


def test_the_id_of_one_request_is_sent_and_several_get_one_together() -> None:
    """A merged call has an id of its own, and no two calls share one."""
    one, nameless = WIRE.parse(request(ints(1), id="a")), WIRE.parse(request(ints(1)))

    assert read(WIRE.merge([one]), "inputs")[0] == {"id": "a"}
    assert read(WIRE.merge([nameless]), "inputs")[0] == {}
    ids = [read(WIRE.merge([one, nameless]), "inputs")[0]["id"] for _ in range(2)]
    assert len({"a", *ids}) == 3


def test_what_is_asked_of_the_whole_request_is_sent_once() -> None:
    """The call has the members that its requests share, including those that KServe's client adds."""
    members = {"model_name": "m", "parameters": {"priority": 1.5}, "outputs": [{"name": "y"}]}
    one = WIRE.parse(request(ints(1), **members))

    merged = json.loads(WIRE.merge([one, one]).body)

    assert merged.pop("inputs") == [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 1]}]
    assert merged.pop("id")
    assert merged == members


def merged_parameters(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    requests = [WIRE.parse(request(ints(1, 2, parameters=own, **more))) for own in parameters]
    result = json.loads(WIRE.merge(requests).body)["inputs"][0].get("parameters", {})
    assert isinstance(result, dict)
    return result


def test_parameters_that_some_requests_have_keep_their_places() -> None:
    """null marks requests without the parameter; parameters of the whole input stay as they are."""
    assert merged_parameters({"p": 1}, {}, {"p": [2], "q": "c"}) == {
        "p": [1, None, [2]],
        "q": [None, None, "c"],
    }
    assert merged_parameters({"p": 1}) == {"p": 1}
    assert merged_parameters({}, {}) == {}
    whole = {"content_type": "np", "headers": {"a": "b"}}
    assert merged_parameters({**whole, "p": 1}, {**whole, "p": 2}) == {**whole, "p": [1, 2]}


BASE = ints(1, 2, 3, 4, inner=[2])


@pytest.mark.parametrize(
    "other",
    [
        request(replace(BASE, datatype="FP32")),
        request(replace(BASE, inner=[4])),
        request(replace(BASE, inner=[2, 1])),
        request(replace(BASE, name="y")),
        request(replace(BASE, form="nested")),
        request(BASE, BASE),
        request(replace(BASE, form="binary", items=[b"12345678"] * 4)),
        request(BASE, outputs=[{"name": "y"}]),
        request(BASE, outputs=[]),
        request(BASE, parameters={"binary_data_output": True}),
        request(BASE, parameters={"p": 1.0}),
        request(BASE, model_name="m"),
        request(replace(BASE, parameters={"content_type": "np"})),
        request(replace(BASE, parameters={"headers": {"Authorization": "me"}})),
        Content(b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"INT64","data":[]}]}'),
    ],
)
def test_requests_that_differ_do_not_share_a_call(other: Content) -> None:
    assert WIRE.parse(other).key != WIRE.parse(request(BASE)).key


def test_requests_that_differ_in_their_rows_share_a_call() -> None:
    other = ints(5, 6, inner=[2], parameters={"p": 1}, space=" ")

    key = WIRE.parse(request(BASE)).key
    assert WIRE.parse(request(other, id="a")).key == key
    more = {"parameters": {"a": 1}, "model_name": "m"}
    assert hash(WIRE.parse(request(other, **more)).key) == hash(WIRE.parse(request(BASE, **more)).key)


def test_which_outputs_are_wanted_in_binary() -> None:
    """An output's own parameter overrides the request's."""
    wanted = [{"name": "b", "parameters": {"binary_data": True}}, {"name": "d"}]
    neither = WIRE.parse(request(BASE))
    some = WIRE.parse(request(BASE, outputs=wanted))
    rest = [{"name": "j", "parameters": {"binary_data": False}}]
    most = WIRE.parse(request(BASE, outputs=rest, parameters={"binary_data_output": True}))

    assert not neither.wants_binary("b")
    assert (some.wants_binary("b"), some.wants_binary("d")) == (True, False)
    assert (most.wants_binary("j"), most.wants_binary("other")) == (False, True)
    assert list(some.wanted) == ["b", "d"]


def test_null_is_as_good_as_absent() -> None:
    one = WIRE.parse(Content(b'{"id":null,"parameters":null,"outputs":null,"inputs":[%b]}' % X))

    assert (one.id, one.wanted, one.wants_binary("y")) == (None, {}, False)


AWKWARD = [
    *("NaN", "-Infinity", "Infinity", "1e400", "-0.0", "1E+2", "0.1000000000000000055511151231257827"),
    *("9007199254740993", "7" * 5000, "null"),
]


@pytest.mark.parametrize("value", AWKWARD)
@pytest.mark.parametrize("form", ["flat", "nested"])
def test_numbers_that_json_does_not_have_arrive_as_sent(value: str, form: str) -> None:
    """In requests and replies, in values and in parameters."""
    parameters = f'"parameters": {{"t": {value}, "\\u0061": [{value}, 1]}}'

    def tensor(name: str, *rows: str) -> str:
        data = ", ".join(rows if form == "flat" else [f"[{row}]" for row in rows])
        shape = f'"datatype": "FP64", "shape": [{len(rows)}, 1]'
        return f'{{"name": "{name}", {shape}, "data": [{data}], {parameters}}}'

    body = f'{{{parameters}, "inputs": [{tensor("x", value, "2")}]}}'.encode()
    one = WIRE.parse(Content(body))
    merged = WIRE.merge([one, WIRE.parse(Content(body))]).body.decode()

    inner = value if form == "flat" else f"[{value}]"
    assert f'"data":[{inner}, {"2" if form == "flat" else "[2]"},{inner}' in merged
    assert f'"parameters":{{"t": {value}' in merged
    reply = f'{{"n": {value}, "outputs": [{tensor("y", value, "2", value, "3")}]}}'.replace(
        parameters, f'"parameters": {{"t": {value}}}'
    )
    first, second = WIRE.split(Content(reply.encode()), [one, one])
    rendered = [WIRE.render(share, one, batch_id="b").body.decode() for share in (first, second)]
    for text, last in zip(rendered, ("2", "3"), strict=True):
        assert f'"n":{value}' in text
        assert f'"t":{value}' in text
        assert value in text.partition('"data":')[2]
        assert last in text.partition('"data":')[2]
    assert [part.rows for part in WIRE.cut(one, 1)] == [1, 1]


def test_halves_of_surrogate_pairs_arrive_as_sent() -> None:
    """In names, ids, parameters and values."""
    half = r'"\ud800"'
    body = (
        f'{{"id": {half}, "inputs": [{{"name": {half}, "datatype": "BYTES", "shape": [1], '
        f'"parameters": {{{half}: {half}}}, "data": [{half}]}}]}}'
    )
    one = WIRE.parse(Content(body.encode()))

    merged = WIRE.merge([one]).body.decode()
    assert json.loads(merged) == json.loads(body)
    assert f'"data":[{half}]' in merged


@pytest.mark.parametrize(
    "text",
    [
        '{"inputs": [NaN]}',
        '{"inputs": {"x": NaN}}',
        '{"inputs": [{"name": NaN, "shape": [1], "datatype": "FP32", "data": [1]}]}',
        '{"inputs": [{"name": "x", "shape": [NaN], "datatype": "FP32", "data": [1]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a", NaN]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "BOOL", "data": [NaN]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [NaNN]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [+Infinity]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": NaN}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": [NaN], "data": [1]}]}',
        '{"parameters": NaN, "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}',
        '{"outputs": NaN, "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}',
        '{"inputs": [{"name": "x", "shape": [%s], "datatype": "FP32", "data": [NaN]}]}' % ("7" * 5000),
        "NaN",
        "[" * 100_000,
        '{"x": NaN, "inputs": ' + "[" * 100_000,
    ],
)
def test_not_a_number_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        WIRE.parse(Content(text.encode()))


def test_inputs_of_very_many_parameters_go_alone() -> None:
    """A merged input would have each of them once for every request."""
    for count in (64, 65):
        content = request(ints(1, parameters={f"p{at}": at for at in range(count)}))
        with pytest.raises(Unmergeable) if count > 64 else contextlib.nullcontext():
            assert WIRE.parse(content).rows == 1


# Requests that are refused, or cannot share a call


def with_header(text: bytes, blocks: bytes, header: bytes | None = None) -> Content:
    """Return a body with bytes after the JSON."""
    return Content(text + blocks, ((HEADER, b"%d" % len(text) if header is None else header),))


def binary_x(size: object, shape: str = "[2]", datatype: str = "INT16") -> bytes:
    """Return the JSON of a request with one binary tensor."""
    parameters = f'"parameters":{{"binary_data_size":{size}}}'
    return f'{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}",{parameters}}}]}}'.encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "'inputs' is missing; the body has no members"),
        (b'{"inputs":{}}', "Expected `array`"),
        (b'{"inputs":[{}]}', "missing required field `name`"),
        (b'{"id":' + b"[" * 100_000, "not valid JSON: .*recursion"),
        (b'{"id":7,"inputs":[%b]}' % X, "id must be a string, got '7'"),
        (b'{"id":"\xff","inputs":[%b]}' % X, "not valid UTF-8"),
        (b'{"parameters":[],"inputs":[%b]}' % X, "parameters must be an object: Expected `object . null`"),
        (b'{"parameters":{"binary_data_output":1},"inputs":[%b]}' % X, "must be true or false, got '1'"),
        (b'{"outputs":{},"inputs":[%b]}' % X, "outputs must be a list .* Expected `array . null`"),
        (b'{"outputs":[{}],"inputs":[%b]}' % X, "missing required field `name`"),
        (b'{"outputs":[{"name":"y","parameters":{"binary_data":0}}],"inputs":[%b]}' % X, "got '0'"),
        (b'{"inputs":[%b]}' % X.replace(b'"x"', b"7"), "Expected `str`, got `int`"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[1.0]", 1), "Expected `int`, got `float`"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[-1]", 1), "from 0 to 9223372036854775807, got -1"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[9223372036854775808]", 1), "got 9223372036854775808"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[1%b]" % (b",1" * 64), 1), "at most 64 axes, got 65"),
        (b'{"inputs":[%b]}' % X.replace(b"INT64", b"INT128"), "one of BOOL, .*BF16.*, BYTES, got 'INT128'"),
        (b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"parameters":{}'), "needs a list in data"),
        (b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"data":null'), "needs a list in data"),
        (b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"data":"1"'), "needs a list in data"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[NaN]}"), "not valid JSON"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[-Infinity]}"), "not valid JSON"),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[1,2]}"),
            r"\[1\] of INT64 needs 1 value, got 2",
        ),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[[1]]}"), "must be nested like its shape"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[1,[2]]}"), "the data mixes nested lists and values"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b'[{"a":1}]}'), "got an object"),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1],", b"[2],").replace(b"[1]}", b"[]}"),
            "needs 2 values, got 0",
        ),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1],", b"[2,1],").replace(b"[1]}", b"[[1],[]]}"),
            "must be nested like",
        ),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1],", b"[2,2],").replace(b"[1]}", b"[[1],[2,3,4]]}"),
            "must be nested like",
        ),
        (binary_x(4), "its binary data ends at byte 4, got 0 bytes"),
        (binary_x(4) + bytes(4), "send the length of the JSON in the header Inference-Header-Content-Length"),
    ],
)
def test_a_malformed_request_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        WIRE.parse(Content(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_header(binary_x(4), b"1234", b"-1"), "must be from 0 to .*, got '-1'"),
        (with_header(binary_x(4), b"1234", b""), "got ''"),
        (with_header(binary_x(4), b"1234", b"ten"), "got 'ten'"),
        (with_header(binary_x(4), b"1234", b"1" * 5000), "got '1111"),
        (with_header(binary_x(4), b"1234", b"\xb2"), "must be from 0 to"),
        (
            with_header(binary_x(4), b"1234", b"%d" % (len(binary_x(4)) + 5)),
            "must be from 0 to",
        ),
        (with_header(binary_x(4), b"1234", b"%d" % (len(binary_x(4)) - 1)), "not valid JSON"),
        (with_header(binary_x(4), b"1234", b"%d" % (len(binary_x(4)) + 1)), "not valid JSON"),
        (with_header(binary_x(4), b"123"), "ends at byte 4, got 3 bytes"),
        (
            with_header(binary_x(4), b"12345"),
            "expected 4 bytes of binary data by the tensors' binary_data_size, got 5",
        ),
        (with_header(binary_x(3), b"123"), "needs 4 bytes, got 3"),
        (with_header(binary_x(0, "[1]"), b""), "needs 2 bytes, got 0"),
        (with_header(binary_x(-1), b""), "at least 0, got '-1'"),
        (with_header(binary_x("4.0"), b"1234"), "got '4.0'"),
        (with_header(binary_x("9" * 5000), b"1234"), "got '9999"),
        (with_header(binary_x('"4"'), b"1234"), "binary_data_size must be a number"),
        (with_header(binary_x(8, datatype="BYTES"), b"\4\0\0\0abcd"), "needs 2 values, got 1"),
        (with_header(binary_x(8, "[1]", "BYTES"), b"\5\0\0\0abcd"), "incomplete"),
        (with_header(binary_x(2, "[1]", "BYTES"), b"\0\0"), "incomplete"),
        (
            with_header(binary_x(4).replace(b'"par', b'"data":[1,2],"par'), b"1234"),
            "has both data and binary_data_size",
        ),
    ],
)
def test_binary_data_that_is_not_what_the_request_says_is_refused(content: Content, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        WIRE.parse(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_header(b"", b"1234", b"0"), "raw tensors without JSON"),
        (Content(b'{"inputs":[]}'), "no inputs"),
        (Content(b'{"inputs":[%b]}' % X.replace(b"[1],", b"[],")), "same number of rows"),
        (Content(b'{"inputs":[%b]}' % X.replace(b"[1],", b"[0],").replace(b"[1]}", b"[]}")), "at least 1"),
        (
            Content(b'{"inputs":[%b]}' % X.replace(b"[1],", b"[9,0],").replace(b"[1]}", b"[]}")),
            "no axis of length 0",
        ),
        (request(ints(1), ints(1, 2, name="y")), r"'x' \[1\], 'y' \[2\]"),
        (request(ints(1), parameters={"sequence_id": 7}), "sequence_id"),
        (request(ints(1), parameters={"sequence_start": True}), "sequence_start"),
        (request(ints(1), parameters={"sequence_end": False}), "sequence_end"),
        (
            Content(
                b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"parameters":{"shared_memory_region":"r"}')
            ),
            "tensor 'x': shared memory is not supported",
        ),
        (
            request(ints(1), outputs=[{"name": "y", "parameters": {"shared_memory_byte_size": 8}}]),
            "tensor 'y': shared memory",
        ),
        (Content(b'{"inputs":[%b]}' % X.replace(b'"data"', b'"new":1,"data"')), "unknown field `new`"),
    ],
)
def test_what_an_upstream_must_see_as_it_came_shares_no_call(content: Content, message: str) -> None:
    """A server may accept it unbatched."""
    with pytest.raises(Unmergeable, match=message):
        WIRE.parse(content)


@given(data=st.data())
def test_any_bytes_are_a_request_or_refused(data: st.DataObject) -> None:
    """Any body is rejected, or can be merged like any other."""
    content = request(*data.draw(mergeable())[0], id="a")
    damaged = data.draw(st.binary(max_size=30) | mutated(st.just(content.body)))
    header = content.header(HEADER)
    if header is not None:
        header = data.draw(
            st.sampled_from([header, b"%d" % (int(header) + len(damaged) - len(content.body))])
        )
    try:
        one = WIRE.parse(Content(damaged, () if header is None else ((HEADER, header),)))
    except (BadRequest, Unmergeable):
        return
    two = WIRE.parse(WIRE.merge([one, one]))
    assert (two.rows, two.key) == (2 * one.rows, one.key)
    assert [part.rows for part in WIRE.cut(two, one.rows)] == [one.rows, one.rows]
