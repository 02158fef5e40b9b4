"""The DataFrame adapter."""

import csv
import importlib.util
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.adapters import dataframe as module
from uncork_workers.definition.adapters.columns import MISSING
from uncork_workers.definition.adapters.dataframe import DataFrame
from uncork_workers.wire.values import DefinitionError

# Texts that a reader may interpret differently alone and among others.
_WORDS = [
    *("", "NA", "nan", "null", "None", "True", "false", "TRUE", "x", "0", "-0", "-0.0", "007", "1.10", " 1 "),
    *("1e3", "1e", "+5", ".5", "5.", "inf", "-Infinity", "1e400", "1_000", "0x10", "\u0661", "\ufeffx", "  "),
    *(
        "9007199254740993",
        "9223372036854775808",
        "18446744073709551616",
        "-1",
        "9" * 400,
        'a"b',
        "a,b",
        "a\nb",
    ),
]
WORDS = (
    st.sampled_from(_WORDS)
    | st.integers(-(10**20), 10**20).map(str)
    | st.floats().map(repr)
    | st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
)
VALUES = (
    st.sampled_from([None, True, False, 0, -1, 1.5, 2**53 + 1, 2**64, "", "x", "1", "NA"])
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
DTYPES = st.sampled_from([None, "str", "float64", "float32", "int64", "int8", "uint64", "bool"])


class Case(NamedTuple):
    """The settings of an API, column names in the order of the client, and the rows of each request."""

    columns: list[str] | None
    dtypes: dict[str, str]
    names: list[str]
    requests: list[list[list[Any]]]

    @property
    def adapter(self) -> DataFrame:
        return DataFrame(columns=self.columns, dtypes=self.dtypes)

    @property
    def rows(self) -> list[int]:
        return list(map(len, self.requests))


@st.composite
def cases(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Case:
    """Columns with and without dtypes, in different orders for handler and client."""
    dtypes = {name: draw(DTYPES) for name in draw(st.sampled_from(["a", "ab", "cab"]))}
    columns = draw(st.sampled_from([None, sorted(dtypes)]))
    known = {name: dtype for name, dtype in dtypes.items() if dtype}
    rows = st.lists(st.tuples(*(values for _ in dtypes)).map(list), min_size=1, max_size=3)
    return Case(columns, known, list(dtypes), draw(st.lists(rows, min_size=1, max_size=4)))


def csv_of(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def json_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows])[1:-1].encode()


def from_csv(case: Case) -> pd.DataFrame:
    bodies = [csv_of(rows) for rows in case.requests]
    return case.adapter.merge_table(bodies, ",".join(case.names), case.rows)


def from_json(case: Case) -> pd.DataFrame:
    return case.adapter.merge([json_of(case.names, rows) for rows in case.requests])


def cells(frame: pd.DataFrame) -> list[list[tuple[str, str]]]:
    """Return type and text of each value, to tell 1, 1.0, True and "1" apart, and 0.0 and -0.0."""
    columns = [[(type(value).__name__, repr(value)) for value in frame[name].tolist()] for name in frame]
    return [list(row) for row in zip(*columns, strict=True)]


def check_batched_is_as_alone(case: Case, merge: Callable[[Case], pd.DataFrame]) -> None:
    """Check that batching changes neither validity nor values of any request."""
    valid, expected = [], []
    for rows in case.requests:
        try:
            alone = merge(case._replace(requests=[rows]))
        except InvalidInput:
            continue
        valid.append(rows)
        expected += cells(alone)
    if len(valid) < len(case.requests):
        with pytest.raises(InvalidInput):
            merge(case)
    if not valid:
        return

    merged = merge(case._replace(requests=valid))

    assert cells(merged) == expected
    assert list(merged.columns) == (case.columns or case.names)
    assert merged.index.equals(pd.RangeIndex(len(expected)))
    for name, dtype in case.dtypes.items():
        assert merged[name].dtype == dtype


@given(case=cases(WORDS))
@example(case=Case(None, {}, ["a"], [[["True"]], [["18446744073709551616"], ["1_000"]]]))
@example(case=Case(None, {"a": "float64"}, ["a"], [[["-0.0"]], [["18446744073709551616"], ["1_000"]]]))
@example(case=Case(None, {}, ["a"], [[["1"]], [["x"]], [["True"]], [[""]], [["True"], [""]], [["x"], ["2"]]]))
@example(case=Case(None, {}, ["a"], [[["9" * 20]], [["1.5"]], [["-0"]]]))
@example(case=Case(None, {}, ["a"], [[["9" * 20]], [["1"]]]))
@example(case=Case(None, {}, ["a"], [[[""]], [[str(2**63)]]]))
@example(case=Case(None, {}, ["a"], [[[""], ["x"]], [[str(2**64)]], [["True"]]]))
@example(case=Case(None, {"a": "float64"}, ["a"], [[["NA"]], [[str(2**63)]]]))
@example(case=Case(None, {}, ["a"], [[["-1"]], [[str(2**64 - 1)]]]))
@example(case=Case(None, {}, ["a"], [[["\ufeff"]], [["\ufeffb"]]]))
@example(case=Case(None, {"a": "int64"}, ["a"], [[[str(2**53 + 1)]], [["1.0"]]]))
def test_batched_csv_is_as_alone(case: Case) -> None:
    check_batched_is_as_alone(case, from_csv)


@given(case=cases(VALUES))
@example(case=Case(None, {}, ["a"], [[[1]], [["x"]], [[True]], [[None]], [[True], [None]], [["x"], [2]]]))
@example(case=Case(None, {}, ["a"], [[[10**400]], [[1.5]]]))
def test_batched_json_is_as_alone(case: Case) -> None:
    check_batched_is_as_alone(case, from_json)


@given(
    case=cases(
        st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.just("x")
    )
)
def test_csv_is_as_json(case: Case) -> None:
    """For columns of one kind of value, except for the sign of -0.0."""
    requests = [rows[:1] for rows in case.requests]
    texts = [[[str(value) for value in row] for row in rows] for rows in requests]
    outcomes = []
    for merge, values in ((from_csv, texts), (from_json, requests)):
        try:
            merged = merge(case._replace(requests=values))
            outcomes.append(repr(cells(merged)).replace("'-0.0'", "'0.0'"))
        except InvalidInput:
            outcomes.append("")
    if "str" not in case.dtypes.values():
        assert outcomes[0] == outcomes[1]


@given(rows=st.lists(st.lists(WORDS, min_size=2, max_size=2), min_size=1, max_size=5))
@example(rows=[["True", "x"], ["", ""]])
@example(rows=[["-0", "1"], ["-0.0", "1.5"]])
@example(rows=[["", "18446744073709551616"], ["", "1_000"]])
def test_a_request_alone_is_as_pandas_reads_it(rows: list[list[str]]) -> None:
    """Except that all numbers are float64."""
    expected = pd.read_csv(io.BytesIO(b"a,b\n" + csv_of(rows)), low_memory=False)

    got = DataFrame().merge_table([csv_of(rows)], "a,b", [len(rows)])

    for at, name in enumerate("ab"):
        for value, cell, row in zip(got[name].tolist(), expected[name].tolist(), rows, strict=True):
            # In a column with integers from 2**63 on, pandas leaves missing values as text.
            if pd.isna(cell) or cell in MISSING:
                assert pd.isna(value)
            elif got[name].dtype == "float64":
                assert value == float(str(cell))
            elif type(cell) is int:
                # If one does not fit 64 bits, pandas also reads texts such as 1_000 as integers.
                assert value == row[at]
            else:
                assert (type(value), value) == (type(cell), cell)


def test_numbers_are_floats_and_all_else_is_what_it_is() -> None:
    frame = DataFrame().merge(
        [b'{"n":1,"t":"x","b":true,"m":null}', b'{"n":null,"t":null,"b":false,"m":null}']
    )
    table = DataFrame().merge_table([b"1,x,True,\n", b",,False,\n"], "n,t,b,m", [1, 1])

    assert list(map(str, table.dtypes)) == ["float64", "str", "bool", "float64"]
    pd.testing.assert_frame_equal(frame, table)


@pytest.mark.parametrize("text", sorted(MISSING - {""}))
def test_only_an_empty_field_is_missing_in_a_column_of_text(text: str) -> None:
    """The same text is the same value in CSV and JSON, whatever the other columns have."""
    adapter = DataFrame(dtypes={"c": "str"})
    lines = f"{text},{text}\n,9\n".encode()
    for others in (b"DE,18446744073709551616\n", b"DE,1\n", b"DE,x\n"):
        table = adapter.merge_table([lines, others], "c,n", [2, 1])
        assert table.c.tolist()[::2] == [text, "DE"]
        assert pd.isna(table.c[1])
        assert pd.isna(table.n[0])
        assert table.c.dtype == adapter.merge([b'{"c":null}']).c.dtype
    frame = adapter.merge([msgspec.json.encode({"c": text})])
    assert frame.c.tolist() == [text]


def test_columns_are_matched_by_name() -> None:
    adapter = DataFrame(columns=["b", "a"])
    expected = pd.DataFrame({"b": [2.0, 4.0], "a": [1.0, 3.0]})

    pd.testing.assert_frame_equal(adapter.merge([b'{"a":1,"b":2},{"b":4,"a":3}']), expected)
    pd.testing.assert_frame_equal(adapter.merge_table([b"1,2\n", b"3,4\n"], '"a","b"', [1, 1]), expected)
    with pytest.raises(
        InvalidInput, match=r"^the first row has the wrong columns: missing 'b'; unknown 'c'; expected "
    ):
        adapter.merge_table([b"1,2\n"], "a,c", [1])


def test_the_handler_may_write() -> None:
    for frame in (
        DataFrame(dtypes={"a": "int8"}).merge([b'{"a":1}']),
        DataFrame(dtypes={"a": "int8"}).merge_table([b"1\n"], "a", [1]),
    ):
        frame.loc[0, "a"] = 5
        frame["b"] = frame.a * 2
        assert frame.to_dict("records") == [{"a": 5, "b": 10}]


def test_the_limits_of_dtypes_fit() -> None:
    ends: dict[str, list[float]] = {
        "int8": [-128, 127],
        "uint64": [0, 2**64 - 1],
        "float32": [-float(np.finfo("f4").max), math.pi],
    }
    for dtype, values in ends.items():
        adapter = DataFrame(dtypes={"a": dtype})
        expected = np.array(values, dtype=dtype)
        for frame in (
            adapter.merge([json_of("a", [[value] for value in values])]),
            adapter.merge_table([csv_of([[str(value)] for value in values])], "a", [2]),
        ):
            np.testing.assert_array_equal(frame.a.to_numpy(), expected)


BEYOND = "which is out of range$"
WRONG_VALUES = {
    ("float64", "x"): "each value a number or missing, got 'x'",
    ("float64", "true"): "each value a number or missing, got ",
    ("float32", "1e39"): f"each value a number or missing, got 1e.39, {BEYOND}",
    ("int64", "1.5"): "each value an integer, got ",
    ("int64", "1.0"): "each value an integer, got ",
    ("int64", ""): "each value an integer, got ",
    ("int64", "x"): "each value an integer, got ",
    ("int8", "128"): f"each value an integer, got 128, {BEYOND}",
    ("int64", "9223372036854775808"): f"each value an integer, got 9223372036854775808, {BEYOND}",
    ("uint8", "-1"): f"each value an integer, got -1, {BEYOND}",
    ("bool", "1"): "each value true or false, got ",
    ("bool", ""): "each value true or false, got ",
    ("bool", "x"): "each value true or false, got ",
}


@pytest.mark.parametrize(("dtype", "word"), WRONG_VALUES)
def test_a_value_that_does_not_fit_is_refused(dtype: str, word: str) -> None:
    adapter = DataFrame(dtypes={"b": dtype})
    reason = f"^column 'b' must be {dtype}, {WRONG_VALUES[dtype, word]}"
    try:
        value = None if not word else json.loads(word)
    except json.JSONDecodeError:
        value = word

    with pytest.raises(InvalidInput, match=reason):
        adapter.merge_table([csv_of([["1", word]])], "a,b", [1])
    with pytest.raises(InvalidInput, match=reason):
        adapter.merge([json_of("ab", [[1, value]])])


DEEP = b"[" * 10_000 + b"1" + b"]" * 10_000


@pytest.mark.parametrize("body", [b"1,2\n1,2,3\n", b"1,2\n\xff,2\n", b'1,2\n"1,2\n', b"1,2\n"])
def test_wrong_tables_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        DataFrame().merge_table([body], "a,b", [2])


def test_without_pandas_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module itself must import without pandas."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)

    with pytest.raises(
        DefinitionError, match=r"^DataFrame requires pandas; run pip install 'pandas>=[\d.]+'$"
    ):
        fresh.DataFrame()


def test_the_schema_of_a_row() -> None:
    anything = {"type": ["number", "boolean", "string", "null"]}

    assert DataFrame(columns=["b", "a"], dtypes={"a": "uint8"}).schema() == {
        "type": "object",
        "properties": {"b": anything, "a": {"type": "integer", "minimum": 0}},
        "required": ["b", "a"],
        "additionalProperties": False,
    }
    assert DataFrame(dtypes={"a": "str"}).schema() == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": anything,
        "minProperties": 1,
    }
