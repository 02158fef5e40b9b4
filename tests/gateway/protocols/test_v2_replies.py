"""Replies to V2 calls that are split and joined."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import mutated
from tests.gateway.protocols.v2_bodies import HEADER, Written, body, ints, mergeable
from uncork_gateway.protocols.v2_message import write
from uncork_gateway.protocols.v2_replies import InferReply, join, split
from uncork_gateway.protocols.wire import Content, UncertainReply, WrongReply


def reply(*outputs: Written, **members: Any) -> Content:
    return body("outputs", outputs, **members)


def answers(content: Content, *rows: int) -> list[dict[str, Any]]:
    """Return the JSON answers of requests with the given rows."""
    return [as_json(part) for part in split(content, rows)]


def as_json(part: InferReply) -> dict[str, Any]:
    """Return the JSON of a reply without an id."""
    result = json.loads(write(part.members, None, b"outputs", part.outputs).body)
    assert isinstance(result, dict)
    return result


def parameters(own: dict[str, Any], *rows: int) -> list[dict[str, Any]]:
    """Return the parameters of an output for requests with the given rows."""
    content = reply(ints(*range(sum(rows)), parameters=own))
    return [answer["outputs"][0].get("parameters", {}) for answer in answers(content, *rows)]


def joined(*parts: tuple[int, Written]) -> dict[str, Any]:
    """Return the joined reply of parts with the given rows."""
    return as_json(join([part for rows, tensor in parts for part in split(reply(tensor), [rows])]))


def test_parameters_of_requests_of_several_rows() -> None:
    """Lists are split by request or by row; lists of other lengths are copied."""
    assert parameters({"p": ["a", "b"]}, 2, 3) == [{"p": "a"}, {"p": "b"}]
    assert parameters({"p": ["a"]}, 2, 3) == [{"p": "a"}, {}]
    assert parameters({"p": [None, "b"]}, 2, 3) == [{}, {"p": "b"}]
    assert parameters({"p": []}, 2, 3) == [{}, {}]
    assert parameters({"p": [1, 2, 3, None]}, 2, 1, 1) == [{"p": [1, 2]}, {"p": 3}, {}]
    with pytest.raises(WrongReply, match="expected 'p' to have a value for each of 2 requests or 4 rows"):
        parameters({"p": [1, 2, 3]}, 2, 2)
    assert parameters({"p": "a", "q": {"r": [1, 2]}}, 1, 1) == [{"p": "a", "q": {"r": [1, 2]}}] * 2
    whole = {"content_type": ["np", "hg"], "headers": [1, 2]}
    assert parameters(whole, 1, 1) == [whole, whole]


@pytest.mark.parametrize("values", [["a"], ["a", "b", "c"], []])
def test_one_request_gets_parameters_as_they_are(values: list[str]) -> None:
    assert parameters({"p": values}, 3) == [{"p": values}]


def test_lists_beside_the_outputs_are_split_too() -> None:
    """They may have a value for each request."""
    members = {"model_name": "m", "parameters": {"p": [1, 2], "q": "r"}, "new": [3, 4]}

    for at, answer in enumerate(answers(reply(ints(1, 2), **members), 1, 1)):
        del answer["outputs"]
        assert answer == {"model_name": "m", "parameters": {"p": at + 1, "q": "r"}, "new": at + 3}
    with pytest.raises(WrongReply, match="got a list of 3"):
        answers(reply(ints(1, 2), new=[1, 2, 3]), 1, 1)
    with pytest.raises(WrongReply, match="parameters must be an object"):
        answers(reply(ints(1, 2), parameters="all"), 1, 1)


@pytest.mark.parametrize("outputs", [[1], [1, 1], [1, 3]])
def test_an_output_of_one_row_is_for_all_only_beside_one_with_all_rows(outputs: list[int]) -> None:
    """Else it may be the output for the first request."""
    tensors = [ints(*range(rows), name=f"y{at}") for at, rows in enumerate(outputs)]

    with pytest.raises(WrongReply):
        answers(reply(*tensors), 1, 1)


def test_what_is_not_of_the_rows_is_copied() -> None:
    """All members but the id are copied, unknown ones included."""
    members = {"model_name": "m", "model_version": "3", "parameters": {"p": {"q": [1]}}, "new": 1.5}

    for answer in answers(reply(ints(1, 2), id="theirs", **members), 1, 1):
        del answer["outputs"]
        assert answer == members


def test_an_output_of_one_row_is_for_all() -> None:
    bias = ints(5, 6, inner=[2], name="bias", parameters={"p": ["a", "b"]})

    first, second = answers(reply(ints(1, 2, 3), bias), 2, 1)

    assert [output["data"] for output in first["outputs"]] == [[1, 2], [5, 6]]
    assert [output["data"] for output in second["outputs"]] == [[3], [5, 6]]
    assert [answer["outputs"][1]["parameters"] for answer in (first, second)] == [{"p": "a"}, {"p": "b"}]


@pytest.mark.parametrize(
    ("data", "expected"), [("", ["", ""]), ("[], [] ,[]", ["[], [] ", "[]"]), ("[ ],[],[]", ["[ ],[]", "[]"])]
)
def test_rows_without_values_are_dealt_out(data: str, expected: list[str]) -> None:
    shares = split(Content(output("[3,0]", f"[{data}]").encode()), [2, 1])

    assert [share.outputs[0].shape for share in shares] == [(2, 0), (1, 0)]
    assert [share.outputs[0].data.decode() for share in shares] == expected


def output(shape: str, data: str, datatype: str = "INT8") -> str:
    return f'{{"outputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}'


@pytest.mark.parametrize("block", [b"", b"1", b"123", b"1234567"])
def test_a_binary_output_of_another_length_cannot_be_dealt_out(block: bytes) -> None:
    right = reply(Written(name="x", datatype="INT16", inner=[], form="binary", items=[b"12", b"34"]))
    length = int(right.header(HEADER) or b"")
    text = right.body[:length]
    resized = text.replace(b'_size": 4', b'_size": %d' % len(block))

    for described in (text, resized):
        with pytest.raises(WrongReply, match=r"binary data|needs 4 bytes"):
            split(Content(described + block, ((HEADER, b"%d" % len(described)),)), [1, 1])
    with pytest.raises(WrongReply, match="Content-Length must be"):
        split(Content(right.body, ((HEADER, b"-1"),)), [1, 1])


def test_more_texts_than_are_counted_are_a_wrong_reply() -> None:
    """The model server then gets the requests one by one, or the whole request that was cut."""
    data = bytes(4 * 1_200_000)
    described = b'{"name":"x","shape":[2,600000],"datatype":"BYTES","parameters":{"binary_data_size":%d}}'
    text = b'{"outputs":[%b]}' % (described % len(data))
    content = Content(text + data, ((HEADER, b"%d" % len(text)),))

    with pytest.raises(WrongReply, match="too many values to be"):
        split(content, [1, 1])
    [alone] = split(content, [2])
    with pytest.raises(WrongReply, match="too many values to be"):
        join([alone, alone])


@given(data=st.data())
def test_any_bytes_are_dealt_out_or_are_a_wrong_reply(data: st.DataObject) -> None:
    """Malformed replies raise only WrongReply when split or joined."""
    outputs = data.draw(mergeable(least_rows=2))[0]
    content = reply(*outputs, parameters={"p": [1, 2]})
    damaged = Content(data.draw(st.binary(max_size=30) | mutated(st.just(content.body))), content.headers)
    for rows in ([outputs[0].shape[0]], [1] * outputs[0].shape[0]):
        try:
            parts = split(damaged, rows)
            assert [part.rows for part in parts] == rows
            assert join([*parts, *parts]).rows == 2 * sum(rows)
        except WrongReply:
            pass


@pytest.mark.parametrize("shape", ["[]", "[1]", "[7]", "[3,9]"])
def test_the_reply_to_one_request_stays_as_it_is(shape: str) -> None:
    """A reply to one request is not split, so its rows are not checked."""
    text = output(shape, "[1]")

    assert answers(Content(text.encode()), 2) == [json.loads(text)]


def test_parts_are_joined_with_their_parameters() -> None:
    """Equal parameters stay, those of rows become lists."""
    own: list[dict[str, Any]] = [
        {"same": ["a"], "row": [1, 2], "content_type": "np"},
        {"same": ["a"], "row": [3, 4], "content_type": "np"},
        {"same": ["a"], "row": 5, "content_type": "np"},
    ]

    answer = joined(
        (2, ints(1, 2, parameters=own[0])),
        (2, ints(3, 4, parameters=own[1])),
        (1, ints(5, parameters=own[2])),
    )

    assert answer["outputs"] == [
        {
            "name": "x",
            "shape": [5],
            "datatype": "INT64",
            "parameters": {"same": ["a"], "row": [1, 2, 3, 4, 5], "content_type": "np"},
            "data": [1, 2, 3, 4, 5],
        }
    ]


@pytest.mark.parametrize(
    "own", [({"a": 1}, {"a": 2}), ({"a": 1}, {}), ({}, {"a": 1}), ({"content_type": ["np"]}, {})]
)
def test_parameters_that_differ_cannot_be_joined(own: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = own
    with pytest.raises(WrongReply, match=r"differ in '(a|content_type)'"):
        joined((2, ints(1, 2, parameters=one)), (2, ints(3, 4, parameters=other)))


def test_equal_values_of_parts_of_one_row_are_uncertain() -> None:
    """They may be one for each row, or one for all."""
    bias = ints(5, 6, inner=[2], name="bias")
    parts = [split(reply(ints(at), bias), [1])[0] for at in range(3)]

    with pytest.raises(UncertainReply) as caught:
        join(parts)
    assert [output["shape"] for output in as_json(caught.value.joined)["outputs"]] == [[3], [3, 2]]
    with pytest.raises(UncertainReply):
        joined(*[(1, ints(at, parameters={"p": ["a"]})) for at in range(2)])
    assert joined(*[(1, ints(7))] * 2)["outputs"][0]["data"] == [7, 7]


def test_an_output_of_the_length_of_a_part_is_for_all_rows() -> None:
    """Its length is that of the first part, but not of the others."""
    names = ints("a", "b", name="names", datatype="BYTES")
    parts = [split(reply(ints(*rows), names), [len(rows)])[0] for rows in ([1, 2], [3])]

    assert [output["data"] for output in as_json(join(parts))["outputs"]] == [[1, 2, 3], ["a", "b"]]


@pytest.mark.parametrize("sums", [(3, 4), (3, 3)])
def test_sums_of_the_rows_of_parts_cannot_be_joined(sums: tuple[int, int]) -> None:
    with pytest.raises(WrongReply):
        joined((2, ints(sums[0])), (2, ints(sums[1])))


def test_parts_of_different_versions_of_a_model_cannot_be_joined() -> None:
    parts = [split(reply(ints(1), model_version=version), [1])[0] for version in ("1", "2")]

    with pytest.raises(WrongReply, match="differ in one of \\['model_version'\\]"):
        join(parts)
    assert join(parts[:1]) == parts[0]


def test_parts_with_values_missing_do_not_fit_together() -> None:
    """The reply to a part was not checked when it was split."""
    short = Content(output("[2]", "[1]").encode())

    with pytest.raises(WrongReply, match="needs 2 values, got 1"):
        join([split(short, [2])[0], split(reply(ints(1)), [1])[0]])
    scalar = replace(ints(1), datatype="INT8")
    with pytest.raises(WrongReply, match="different outputs"):
        join([split(reply(scalar, scalar), [1])[0], split(reply(scalar), [1])[0]])
