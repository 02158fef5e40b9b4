"""The codec of tables."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.gateway.codecs.bodies import SCALARS, VALUES, mutated, written
from uncork_gateway.codecs.base import Marshalled
from uncork_gateway.codecs.cost import make_weigh
from uncork_gateway.codecs.csv import first_repeated, read_lines, read_table, write_header
from uncork_gateway.codecs.dataframe import DataFrameCodec
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensors import DataForm, Tensor
from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.adapters.dataframe import DataFrame
from uncork_workers.wire.forms import TableForm

CSV = "text/csv"
ANY = DataFrameCodec(columns=None)
AB = DataFrameCodec(columns=["a", "b"])

TEXTS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=4) | st.text(
    alphabet='",\r\n \ta1', max_size=4
)
NEARLY_CSV = st.text(alphabet='aab,,""\r\n\n 1', max_size=16).map(str.encode)
NAMES = st.lists(TEXTS.filter(bool), min_size=1, max_size=3, unique=True)


@st.composite
def tables(draw: st.DrawFn, *, plain: bool = False) -> tuple[list[str], list[list[str]], bytes]:
    """Draw column names, rows, and one of many ways to write them as CSV."""
    fields = st.text(alphabet="ab 1\u00e4", max_size=3) if plain else TEXTS
    names = draw(st.lists(fields.filter(bool), min_size=2 if plain else 1, max_size=3, unique=True))
    rows = draw(st.lists(st.tuples(*(fields for _ in names)).map(list), min_size=1, max_size=4))
    text = io.StringIO(newline="")
    end = draw(st.sampled_from(["\n", "\r\n"] if plain else ["\n", "\r\n", "\r"]))
    for row in (names, *rows):
        # csv.writer quotes only the line end that it writes itself.
        quoted = not plain and (draw(st.booleans()) or any("\r" in field or "\n" in field for field in row))
        style = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
        csv.writer(text, quoting=style, lineterminator=end).writerow(row)  # type: ignore[arg-type]
        text.write(end * draw(st.integers(0, 0 if plain else 2)))
    body = text.getvalue().removesuffix(draw(st.sampled_from(["", end]))).encode()
    return names, rows, draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + body


def rows_in(marshalled: Marshalled) -> list[list[str]]:
    return read_lines(marshalled.body)


@given(table=tables() | tables(plain=True))
@example(table=(["a"], [[""], ["  "]], b'a\n""\n  \n'))
@example(table=(["a", "b"], [["1", "2"]], b"\xef\xbb\xbfa,b\r\n1,2"))
@example(table=(["a", "b"], [["1\r\n", "2"], ["", ""]], b'\n\na,b\r"1\r\n",2\r\r,\r\n\n'))
@example(table=(["a\nb", "c"], [["1", 'x"y']], b'"a\nb",c\n1,x"y\n'))
def test_rows_are_counted_and_travel_with_their_fields(
    table: tuple[list[str], list[list[str]], bytes],
) -> None:
    """Line ends and quotes make no difference; the canonical header is the batch key."""
    names, rows, body = table

    marshalled = ANY.decode(body, CSV)

    form = TableForm(write_header(names))
    assert marshalled == Marshalled(marshalled.body, rows=len(rows), key=form, single=False, form=form)
    assert rows_in(marshalled) == rows
    assert marshalled.body.endswith(b"\n")


@given(table=tables(plain=True))
def test_rows_without_quotes_travel_as_they_came(table: tuple[list[str], list[list[str]], bytes]) -> None:
    names, rows, body = table

    assert read_table(body) == (
        tuple(names),
        "".join(",".join(row) + "\n" for row in rows).encode(),
        len(rows),
    )


@given(body=NEARLY_CSV | mutated(tables().map(lambda table: table[2])) | st.binary(max_size=12))
@example(body=b"a\n\xef\xbb\xbf1\n")
@example(body=b"a\n#1\n")
def test_whatever_is_accepted_shifts_no_other(body: bytes) -> None:
    """Any body gets 400, or adds exactly the counted rows to a batch."""
    try:
        accepted = ANY.decode(body, CSV)
    except BadRequest:
        return
    assert isinstance(accepted.form, TableForm)
    names = read_table(body).names
    adapter = DataFrame(dtypes=dict.fromkeys(names, "str"))
    neighbour = (",".join(f"n{at}" for at in range(len(names))) + "\n").encode()

    counts = [1, accepted.rows, 1]
    merged = adapter.merge_table([neighbour, accepted.body, neighbour], accepted.form.header, counts)

    assert list(merged.columns) == list(names)
    assert len(merged) == sum(counts)
    for at in (0, -1):
        assert merged.iloc[at].tolist() == [f"n{at}" for at in range(len(names))]
    for got, sent in zip(merged[1:-1].to_numpy().tolist(), rows_in(accepted), strict=True):
        assert all(value == field or value != value for value, field in zip(got, sent, strict=True))


def test_one_spelling_of_a_header_is_one_key() -> None:
    """Quotes make no difference; the order of columns does, because rows share one header."""
    bodies = [b"a,b\n1,2\n", b'"a","b"\r\n1,2', b'\xef\xbb\xbfa,"b"\n1,2\n', b"b,a\n2,1\n", b"a;b\n1;2\n"]
    first, *others = [codec_key(body) for body in bodies]

    assert [key == first for key in others] == [True, True, False, False]


def codec_key(body: bytes) -> Any:
    return ANY.decode(body, CSV).key


def test_a_large_field_is_fine() -> None:
    """The csv module's default limit is 128 KiB."""
    assert ANY.decode(b'a\n"%b"\n' % (b"x\n" * 200_000), CSV).rows == 1


RECORDS = b'[{"a":1,"b":"x"},{"a":2.50,"b":null}]'
FORMS = [
    RECORDS,
    b' [ {"a":1 ,"b":"x"} , {"a":2.50,"b":null} ] ',
    b'{"columns":["a","b"],"data":[[1,"x"],[2.50,null]]}',
    b'{"columns":["a","b"],"index":[7,7],"data":[[1,"x"],[2.50,null]]}',
    b'{"a":[1,2.50],"b":["x",null]}',
    b'{"a":{"0":1,"1":2.50},"b":{"1":null,"0":"x"}}',
]


def test_a_single_row_is_answered_as_one() -> None:
    marshalled = AB.decode(b' {"b": 1, "a": null} ')

    assert marshalled == Marshalled(b'{"b": 1, "a": null}', rows=1, key=None, single=True)
    assert marshalled.json_answer(b"5") == b"5"
    assert replace(marshalled, single=False).json_answer(b"5,6") == b"[5,6]"


ROWS = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.lists(SCALARS | st.none(), min_size=width, max_size=width), min_size=1, max_size=4
    )
)


@given(data=st.data(), rows=ROWS)
def test_rows_of_every_form_are_what_was_sent(data: st.DataObject, rows: list[list[Any]]) -> None:
    width = len(rows[0])
    names = data.draw(st.lists(st.text(max_size=3), min_size=width, max_size=width, unique=True))
    records = [dict(zip(names, row, strict=True)) for row in rows]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    value = data.draw(
        st.sampled_from(
            [
                records,
                {"columns": names, "data": rows},
                columns,
                {
                    name: {str(at): value for at, value in enumerate(column)}
                    for name, column in columns.items()
                },
            ]
        )
    )

    marshalled = ANY.decode(data.draw(written(value)))

    assert json.loads(b"[" + marshalled.body + b"]") == records
    assert (marshalled.rows, marshalled.key) == (len(rows), tuple(names))


@given(body=mutated(st.sampled_from(FORMS)) | VALUES.flatmap(written))
def test_json_that_is_accepted_shifts_no_other(body: bytes) -> None:
    """Any body gets 400 here or from the worker, or adds exactly the counted rows."""
    try:
        accepted = AB.decode(body)
    except BadRequest:
        return
    adapter, neighbour = DataFrame(columns=["a", "b"]), b'{"b":"y","a":"z"}'
    try:
        merged = adapter.merge([neighbour, accepted.body, neighbour])
    except InvalidInput:
        with pytest.raises(InvalidInput):
            adapter.merge([accepted.body])
    else:
        assert len(merged) == accepted.rows + 2
        assert merged.iloc[0].tolist() == merged.iloc[-1].tolist() == ["z", "y"]


def test_without_columns_of_the_api_each_set_is_a_batch_of_its_own() -> None:
    """Handlers may depend on the order of columns."""
    assert AB.decode(b'{"b":1,"a":1}').key == AB.decode(b'{"a":1,"b":1}').key
    keys = [ANY.decode(body).key for body in (b'{"a":1}', b'{"a":1,"b":1}', b'{"b":1,"a":1}')]
    assert len(set(keys)) == 3


def test_rows_of_other_protocols_are_rows() -> None:
    assert AB.marshal([b'{"a":1,"b":2}', b'{"b":3,"a":4}']) == Marshalled(
        b'{"a":1,"b":2},{"b":3,"a":4}', rows=2, key=None, single=False
    )
    with pytest.raises(BadRequest, match="each row must be an object"):
        AB.marshal([b"[1,2]"])
    forms: dict[DataForm, bytes] = {"flat": b"1,2", "binary": b"\1\2"}
    for form, data in forms.items():
        tensor = Tensor(name="a", datatype="INT8", shape=(2,), form=form, data=data)
        with pytest.raises(BadRequest, match="missing 'b'; expected 'a', 'b'"):
            AB.marshal_tensor(tensor)


def test_rows_of_csv_are_weighed_as_those_of_json() -> None:
    body = b'n,text\n2.5,ab\n7,"c""d"\n'

    def cost(by: float | str) -> float | None:
        return DataFrameCodec(make_weigh(by), columns=None).decode(body, CSV).cost.total

    assert cost("n") == 9.5
    assert cost("text") == len("ab") + len('c\\"d')
    assert cost(3) == 6
    assert cost("bytes") == len('{"n":2.5,"text":"ab"}{"n":7,"text":"c\\"d"}')
    with pytest.raises(BadRequest, match="the field 'm' is missing"):
        cost("m")


def test_a_repeated_name_is_found_without_comparing_all_with_all() -> None:
    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

    names = [Name(number) for number in range(1000)]
    assert first_repeated([*names, Name(999)]) == "999"
    assert Name.compared < 5000
