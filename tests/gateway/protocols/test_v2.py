"""V2 requests that share a call get the answers they would get alone."""

import json
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import mutated
from tests.gateway.protocols.parts import join_by_rows
from tests.gateway.protocols.v2_bodies import HEADER, Written, ints, mergeable, read, request, serve
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.v2 import InferRequest, V2Wire
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


def test_a_merged_input_has_the_parameters_of_all_requests() -> None:
    """In lists, with a value for each request; parameters of the whole input stay as they are."""
    assert merged_parameters({"p": 1, "q": None}, {"q": "c", "p": [2]}) == {"p": [1, [2]], "q": [None, "c"]}
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
        request(replace(BASE, parameters={"p": 1})),
        request(replace(BASE, parameters={"content_type": "np"})),
        request(replace(BASE, parameters={"headers": {"Authorization": "me"}})),
        Content(b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"INT64","data":[]}]}'),
    ],
)
def test_requests_that_differ_do_not_share_a_call(other: Content) -> None:
    assert WIRE.parse(other).key != WIRE.parse(request(BASE)).key


def test_requests_that_differ_in_their_rows_share_a_call() -> None:
    """And in the values of parameters."""
    base = replace(BASE, parameters={"p": 1, "q": 2})
    other = ints(5, 6, inner=[2], parameters={"q": 3, "p": [4]}, space=" ")

    key = WIRE.parse(request(base)).key
    assert WIRE.parse(request(other, id="a")).key == key
    more = {"parameters": {"a": 1}, "model_name": "m"}
    assert hash(WIRE.parse(request(other, **more)).key) == hash(WIRE.parse(request(base, **more)).key)


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


def test_a_call_has_no_more_parameters_than_its_requests() -> None:
    """Requests with other names do not share it: it would need a value for each name and request."""
    named = [{f"p{number}.{at}": at for at in range(100)} for number in range(20)] * 2
    contents = [request(ints(1, parameters=own), id="a" * 32) for own in named]
    calls: dict[Hashable, list[InferRequest]] = {}
    for content in contents:
        calls.setdefault((one := WIRE.parse(content)).key, []).append(one)

    merged_bytes = sum(len(WIRE.merge(call).body) for call in calls.values())
    assert [len(call) for call in calls.values()] == [2] * 20
    assert merged_bytes < sum(len(content.body) for content in contents)


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
