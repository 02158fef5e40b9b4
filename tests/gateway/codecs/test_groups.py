"""Requests in groups: what is read from rows, columns and CSV, and how rows of several groups are divided."""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.codecs import Codec, Marshalled, codec_of, grouping
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.definition.adapters import Adapter, DataFrame, Json, NdArray
from uncork_workers.process.batches.merging import BatchRequests, merge
from uncork_workers.wire.forms import TableForm
from uncork_workers.wire.groups import value_of
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.schema import ApiDescription
from uncork_workers.wire.tensors import encoded

GROUPS = [1, 1.0, "1", True, False, 0, "", "ü", 'a"b', "x,y", "two\nlines", -2.5]
ROWS = st.lists(st.sampled_from(GROUPS), min_size=1, max_size=8)


def api_of(adapter: Adapter, group_by: str | tuple[str, ...] = "g") -> ApiDescription:
    return ApiDescription(
        name="a", route="/a", input=adapter.describe(), schema=adapter.schema(), group_by=group_by
    )


def codec_for(adapter: Adapter) -> Codec:
    return codec_of(api_of(adapter))


def complete(
    payload: Marshalled, group_by: str | tuple[str, ...] = "g", *headers: bytes, parameters: Any = None
) -> Marshalled:
    found = grouping(api_of(Json(), group_by))
    assert found is not None
    if parameters is not None:
        payload = msgspec.structs.replace(payload, parameters=json.dumps(parameters).encode())
    return found.complete(payload, headers)


def read(adapter: Adapter, payload: Marshalled) -> list[tuple[Any, list[Any]]]:
    """Return each part's group, and its rows as the handler would get them."""
    payload = complete(payload)
    parts = [part.payload for part in payload.parts] or [payload]
    assert sum(part.rows for part in parts) == payload.rows
    found = []
    for part in parts:
        assert part.group is not None
        rows = merge(adapter, BatchRequests([part.body], [part.rows], [part.form]))
        found.append((value_of(part.group), rows if isinstance(rows, list) else rows.to_dict("records")))
    return found


def places(payload: Marshalled, rows: int) -> list[list[int]]:
    return [list(part.rows) for part in payload.parts] or [list(range(rows))]


def check(adapter: Adapter, payload: Marshalled, groups: Sequence[Any]) -> None:
    """All rows of a part have its group, and all rows with its group are in the part, in order."""
    found = read(adapter, payload)
    assert len({(type(group), group) for group, _ in found}) == len(found)
    for (group, rows), numbers in zip(found, places(payload, len(groups)), strict=True):
        assert numbers == [at for at, each in enumerate(groups) if (type(each), each) == (type(group), group)]
        assert [row["n"] for row in rows] == numbers


def objects(groups: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"n": number, "g": group} for number, group in enumerate(groups)]


@given(groups=ROWS, escaped=st.booleans())
def test_rows_of_json_are_divided_by_the_field(groups: list[Any], escaped: bool) -> None:
    rows = [json.dumps(row, ensure_ascii=escaped).encode() for row in objects(groups)]
    check(Json(), codec_for(Json()).marshal(rows), groups)


@given(groups=ROWS)
def test_a_large_value_of_json_is_checked_at_once(groups: list[Any]) -> None:
    row = {"n": 0, "g": groups[0], "long": "x" * 70_000}
    payload = codec_for(Json()).decode(json.dumps(row).encode())
    assert payload.single
    check(Json(), payload, groups[:1])


@given(groups=ROWS, form=st.sampled_from(["records", "split", "columns"]))
def test_tables_are_divided_in_every_form(groups: list[Any], form: str) -> None:
    texts = [json.dumps(group) for group in groups]  # pandas has one type for a column
    rows = objects(texts)
    columns = {"n": list(range(len(texts))), "g": texts}
    body: Any = {
        "records": rows,
        "split": {"columns": ["n", "g"], "data": [list(row.values()) for row in rows]},
        "columns": columns,
    }[form]
    check(DataFrame(), codec_for(DataFrame()).decode(json.dumps(body).encode()), texts)


@given(
    groups=st.lists(
        st.sampled_from(["a", "b", "x,y", 'a"b', "two\nlines", "three\r\nlines", "ü"]), min_size=1, max_size=8
    ),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_csv_is_divided_by_the_column(groups: list[str], quoting: Any, ends: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=quoting, lineterminator=ends)
    writer.writerows([["n", "g"], *enumerate(groups)])
    check(DataFrame(), codec_for(DataFrame()).decode(text.getvalue().encode(), "text/csv"), groups)


def test_numbers_in_csv_are_numbers() -> None:
    payload = complete(codec_for(DataFrame()).decode(b'g,n\n1,0\n"1",1\n1.0,2\n1x,3\n', "text/csv"))
    groups = [value_of(part.payload.group or b"") for part in payload.parts]
    assert [(type(group), group) for group in groups] == [(int, 1), (float, 1.0), (str, "1x")]


NUMBERS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@given(
    groups=NUMBERS, form=st.sampled_from(["flat", "binary"]), adapter=st.sampled_from([Json(), DataFrame()])
)
def test_tensors_are_divided_by_the_input(groups: list[int], form: Any, adapter: Adapter) -> None:
    """JSON and binary, with rows of any shape beside."""
    rows = len(groups)

    def tensor(name: str, datatype: str, values: list[Any], *inner: int) -> Tensor:
        data = encoded(values, datatype) if form == "binary" else json.dumps(values)[1:-1].encode()
        return Tensor(name, datatype, (rows, *inner), form, data)

    tensors = [tensor("n", "INT64", list(range(rows))), tensor("g", "INT64", groups)]
    if isinstance(adapter, Json):
        wide = [[[at, at], [at, at]] for at in range(rows)]
        tensors.append(tensor("wide", "FP32", np.ravel(wide).tolist(), 2, 2))
        tensors.append(tensor("text", "BYTES", [f'row [{at}], "{at}"' for at in range(rows)]))
    payload = codec_for(adapter).marshal_columns(tensors)
    check(adapter, payload, groups)
    if isinstance(adapter, Json):
        for _, found in read(adapter, payload):
            for row in found:
                at = row["n"]
                assert (row["wide"], row["text"]) == ([[at, at], [at, at]], f'row [{at}], "{at}"')


def test_rows_with_nan_are_read() -> None:
    """KServe's clients write it; JSON parsers of other languages would refuse it."""
    [part, other] = complete(codec_for(Json()).marshal([b'{"n":NaN,"g":1}', b'{"n":1,"g":"\\u0031"}'])).parts
    assert (part.payload.group, other.payload.group) == (b"1", b'"1"')


def test_a_missing_column_of_csv_and_an_empty_field_are_refused() -> None:
    codec = codec_for(DataFrame())
    with pytest.raises(BadRequest, match="the field 'g' is missing"):
        complete(codec.decode(b"a,b\n1,2\n", "text/csv"))
    with pytest.raises(BadRequest, match=r"the field 'g' of row 2 must be .*, got null"):
        codec.decode(b"g,b\n1,2\n,2\n", "text/csv")


BY = ("header:x-a", "g", "parameter:p", "header:x-b")


def test_headers_and_parameters_complete_the_group() -> None:
    found = grouping(api_of(Json(), BY))
    assert found is not None
    payload = msgspec.structs.replace(
        codec_for(Json()).decode(b'{"g":1}'), parameters=b'{"p":2.0,"other":[]}'
    )
    headers = found.of_headers([(b"X-B", b"b"), (b"x-c", b"c"), (b"x-b", b"\xfc")])
    assert value_of(found.complete(payload, headers).group or b"") == (None, 1, 2.0, "b, ü")
    with pytest.raises(BadRequest, match="the header x-b must have at most 256 bytes, got 257"):
        found.of_headers([(b"X-B", b"x" * 257)])


def test_other_parameters_may_be_infinite() -> None:
    payload = codec_for(Json()).decode(b'{"n":1}')
    assert complete(payload, parameters={"t": [math.inf, math.nan], "g": 2}).group == b"2"
    with pytest.raises(BadRequest, match="true or false, got -Infinity"):
        complete(payload, parameters={"g": -math.inf})


def test_a_parameter_stands_for_a_field_that_no_row_has() -> None:
    values = Tensor("n", "INT64", (2,), "flat", b"1,2")
    for payload in (
        codec_for(Json()).marshal_tensor(values),
        codec_for(Json()).marshal_columns([values, values]),
    ):
        assert complete(payload, parameters={"g": "de"}).group == b'"de"'
        with pytest.raises(BadRequest, match="the field 'g' is missing"):
            complete(payload, parameters={"n": 1})


def test_an_input_of_groups_has_one_value_per_row() -> None:
    tensors = [Tensor(name, "INT64", (2, 2), "flat", b"1,2,3,4") for name in ("n", "g")]
    with pytest.raises(BadRequest, match=r"^the input 'g' must have one value per row, got \[2, 2\]$"):
        codec_for(Json()).marshal_columns(tensors)


@pytest.mark.parametrize("kind", ["tensors", "csv"])
def test_long_names_count_in_every_part(kind: str) -> None:
    """The message to the worker has them, too."""
    name = "n" * 5000
    tensors = [Tensor(each, "INT64", (2,), "flat", b"1,2") for each in ("g", name)]
    payload = {
        "tensors": lambda: codec_for(Json()).marshal_columns(tensors),
        "csv": lambda: codec_for(DataFrame()).decode(f"g,{name}\n1,1\n2,2\n".encode(), "text/csv"),
    }[kind]()
    payload.came_in(5100)
    sizes = [part.payload.size_bytes for part in complete(payload).parts]
    assert [5000 <= size < 5100 for size in sizes] == [True, True]


def test_a_little_besides_long_rows_does_not_count() -> None:
    """As without groups: the threshold is for the rest, not for the body."""
    texts = {"g": b"1,2", "n": b'"%b","a"' % (b"x" * 9000)}
    tensors = [Tensor(name, "BYTES", (2,), "flat", data) for name, data in texts.items()]
    payload = codec_for(Json()).marshal_columns(tensors)
    payload.came_in(9100)
    assert payload.rest_bytes == 0
    assert [part.payload.rest_bytes for part in complete(payload).parts] == [0, 0]


class CountedText(str):
    """A text that counts how often it is encoded, which takes time for each character."""

    encoded = 0

    def encode(self, *arguments: Any) -> bytes:
        self.encoded += 1
        return super().encode(*arguments)


def test_names_are_encoded_once_for_all_groups() -> None:
    """Names as long as the body, encoded for each group, would stop the event loop for seconds."""
    name, groups = CountedText("n" * 5000), ",".join(map(str, range(50))).encode()
    tensors = [Tensor(each, "INT64", (50,), "flat", groups) for each in ("g", name)]
    payload = codec_for(Json()).marshal_columns(tensors)
    payload.came_in(20_000)
    assert len(complete(payload).parts) == 50
    for part in payload.parts:  # as those of CSV
        part.payload.form = TableForm(name)
    complete(payload)
    assert name.encoded == 1


def test_errors_name_the_row_of_the_whole_request() -> None:
    whole = complete(codec_for(Json()).marshal([b'{"g":1}', b'{"g":2}', b'{"g":1}', b'{"g":2}']))
    assert [part.payload.path_to(RowPath(1, ("n",))) for part in whole.parts] == ["`$[2].n`", "`$[3].n`"]


def test_an_array_has_no_fields() -> None:
    codec = codec_of(api_of(NdArray(dtype="int64", shape=(2,)), ("header:x", "parameter:p")))
    payload = complete(
        codec.decode(b"[[1,2],[3,4]]"), ("header:x", "parameter:p"), b'"a"', parameters={"p": True}
    )
    assert (payload.group, payload.parts, payload.rows) == (b'["a",true]', (), 2)
