"""Results that are tables, as rows and as CSV."""

import csv
import io
import json
import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.definition.outputs.encoding import encode
from uncork_workers.definition.outputs.responses import WrongResult
from uncork_workers.wire.schema import CSV

FRAME = pd.DataFrame(
    {
        "f": [1.5, math.nan],
        "n": pd.array([3, pd.NA], dtype="Int64"),
        "t": pd.to_datetime(["2020-01-02T03:04:05.678", "NaT"]),
        "s": ["é\n", None],
        "b": [True, False],
    }
)


def rows_of(results: object, expected: int = 2) -> list[Any]:
    return [json.loads(text, parse_constant=pytest.fail) for text in encode(results, expected=expected).rows]


def csv_of(results: object, expected: int = 2) -> tuple[bytes, list[bytes]]:
    encoded = encode(results, expected=expected, accept=CSV)
    assert (encoded.content_type, encoded.between, encoded.responses) == (CSV, b"", {})
    return encoded.head, encoded.rows


def read(text: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.decode(), newline="")))


def test_a_frame_is_an_object_for_each_row() -> None:
    assert rows_of(FRAME) == [
        {"f": 1.5, "n": 3, "t": "2020-01-02T03:04:05.678000", "s": "é\n", "b": True},
        {"f": None, "n": None, "t": None, "s": None, "b": False},
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.Series([1.5, math.nan]), [1.5, None]),
        (pd.Series([1, None], dtype="Int64"), [1, None]),
        (pd.Series(["a", pd.NA], dtype="string"), ["a", None]),
        (pd.Series(pd.to_datetime(["2020-01-02", "NaT"])), ["2020-01-02T00:00:00", None]),
        (pd.Series(pd.to_datetime(["2020-01-02T00:00Z", "NaT"])), ["2020-01-02T00:00:00+00:00", None]),
        (pd.Series(pd.to_timedelta(["1D", None])), ["P1DT0H0M0S", None]),
        (pd.Series(["x", "y"], dtype="category"), ["x", "y"]),
        (pd.Series(pd.period_range("2020-01", periods=2, freq="M")), ["2020-01", "2020-02"]),
        (pd.Index([1, 2]), [1, 2]),
    ],
)
def test_a_series_is_a_value_for_each_row(values: object, expected: list[Any]) -> None:
    assert rows_of(values) == expected
    assert rows_of({"x": values}) == [{"x": value} for value in expected]
    assert rows_of(pd.DataFrame({"x": values})) == [{"x": value} for value in expected]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "25ns"])
def test_times_of_numpy_are_iso_text(unit: str) -> None:
    """NumPy turns units finer than Python's into integers."""
    times = np.array(["2020-01-02T03:04:05", "NaT"], dtype=f"datetime64[{unit}]")
    spans = np.array([1, "NaT"], dtype="timedelta64[s]").astype(f"timedelta64[{unit}]")

    for results in (times, list(times), {"x": times}, [{"x": [one]} for one in times]):
        texts = json.dumps(rows_of(results))
        assert texts.count('"2020-01-02T03:04:05"') == texts.count("null") == 1
    if unit != "25ns":
        assert rows_of(spans) == ["PT1S", None]


def test_columns_by_name_are_an_object_for_each_row() -> None:
    columns = {"a": np.array([1, 2]), "b": ["x", None], "c": np.eye(2), "d": (True, np.float32(0.5))}

    assert rows_of(columns) == [
        {"a": 1, "b": "x", "c": [1, 0], "d": True},
        {"a": 2, "b": None, "c": [0, 1], "d": 0.5},
    ]


@pytest.mark.parametrize("make", [lambda: FRAME, lambda: FRAME["f"], lambda: {"a": [1, 2]}, dict])
@pytest.mark.parametrize("accept", ["", CSV])
def test_tables_have_a_row_for_each_row(make: Any, accept: str) -> None:
    got = len(rows_of(make())) if make() is not None and len(make()) else 0
    with pytest.raises(WrongResult, match=f"^the handler returned {got} results for 5 rows$"):
        encode(make(), expected=5, accept=accept)


def test_a_series_within_a_result_is_a_list() -> None:
    assert rows_of([FRAME["b"], {"x": FRAME["b"]}]) == [[True, False], {"x": [True, False]}]


def test_a_frame_is_csv_of_its_columns() -> None:
    head, lines = csv_of(FRAME)

    assert head == b"f,n,t,s,b\r\n"
    assert lines == ['1.5,3,2020-01-02T03:04:05.678000,"é\n",True\r\n'.encode(), b",,,,False\r\n"]


@pytest.mark.parametrize(
    ("results", "head", "lines"),
    [
        (np.array([1.5, math.nan]), b"0\r\n", [b"1.5\r\n", b'""\r\n']),
        (np.array([[1, 2], [3, 4]]), b"0,1\r\n", [b"1,2\r\n", b"3,4\r\n"]),
        ([np.float64(0.5), np.float32(0.25)], b"0\r\n", [b"0.5\r\n", b"0.25\r\n"]),
        ([(1, None), [math.inf, "a,b"]], b"0,1\r\n", [b"1,\r\n", b'inf,"a,b"\r\n']),
        ({"a,b": [1, 2], 3: ["x", 'y"']}, b'"a,b",3\r\n', [b"1,x\r\n", b'2,"y"""\r\n']),
        ([{"a": 1, "b": 2}, msgspec.Raw(b'{"b":3,"a":4}')], b"a,b\r\n", [b"1,2\r\n", b"4,3\r\n"]),
        (
            {"x": np.eye(2), "y": [{"z": np.int8(1)}, "\r"]},
            b"x,y\r\n",
            [b'"[1.0,0.0]","{""z"":1}"\r\n', b'"[0.0,1.0]","\r"\r\n'],
        ),
    ],
    ids=["values", "matrix", "scalars", "lists", "columns", "objects", "nested"],
)
def test_results_of_every_kind_are_csv(results: object, head: bytes, lines: list[bytes]) -> None:
    assert csv_of(results) == (head, lines)


@pytest.mark.parametrize("rows", [[None, {"a": 1}], [{"a": 1}, None], [[1], {"a": 1}], [{"a": 1}, {"b": 1}]])
def test_rows_with_other_columns_share_no_csv(rows: list[Any]) -> None:
    """In either order: the first row may belong to another client."""
    with pytest.raises(WrongResult, match="rows have different columns"):
        csv_of(rows)


CELLS = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.integers() | st.booleans()
)


@given(
    data=st.data(), names=st.lists(st.text("ab,\"'\r\n é", min_size=1), min_size=1, max_size=4, unique=True)
)
def test_readers_of_csv_see_what_was_returned(data: st.DataObject, names: list[str]) -> None:
    cells = data.draw(st.lists(st.tuples(*[CELLS] * len(names)), min_size=1, max_size=4))
    rows = [dict(zip(names, row, strict=True)) for row in cells]

    head, lines = csv_of(rows, len(rows))

    assert read(head) == [names]
    assert [read(line) for line in lines] == [[[str(value) for value in row.values()]] for row in rows]
    assert read(head + b"".join(lines))[1:] == [[str(value) for value in row.values()] for row in rows]
