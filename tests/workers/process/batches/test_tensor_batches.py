"""Batches of raw tensors, alone and with JSON, and the form of results."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import DataFrame, Json, NdArray
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.merging import BatchRequests, merge
from uncork_workers.wire.forms import ColumnsForm, Form, ListForm, TableForm, TensorForm, compact_forms
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import Reply
from uncork_workers.wire.tensors import join_columns


class Kinds(Service):
    @api(input=NdArray(dtype="int16", shape=(2,)))
    def same(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if 13 in rows:
            raise ValueError("poison")
        return rows

    @api(input=NdArray(dtype="float32", shape=()))
    def single(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return rows

    @api(input=NdArray(dtype="float32", shape=()))
    def rounded(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        whole = rows.astype("int64")
        return whole if (whole == rows).all() else rows

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        return items

    @api(input=Json())
    def named(self, items: list[Any]) -> Any:
        return {"\ud800": items}

    @api(input=Json())
    def objects(self, items: list[Any]) -> list[Any]:
        return [{"\ud800": item} for item in items]


def run(
    to: str, bodies: list[bytes], rows: Sequence[int] = (), *, forms: Sequence[Form] = (None,), **fields: Any
) -> tuple[Reply, list[str]]:
    reply, answers = run_batch(Kinds(), to, *bodies, rows=rows, forms=tuple(forms), **fields)
    return reply, [answer.decode() for answer in answers]


PAIRS = TensorForm("UINT16", (2,))


def pairs(*values: int) -> bytes:
    return np.array(values, "<u2").tobytes()


@given(
    sent=st.lists(
        st.tuples(
            st.sampled_from(["JSON", "UINT16", "INT64"]),
            st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=8,
    ),
    limit_rows=st.integers(1, 9),
    to=st.sampled_from(["same", "echo"]),
)
def test_tensors_of_any_datatype_share_a_batch_with_json(
    sent: list[tuple[str, list[tuple[int, int]]]], limit_rows: int, to: str
) -> None:
    texts = [",".join(f"[{a},{b}]" for a, b in rows) for _, rows in sent]
    bodies = [
        text.encode() if kind == "JSON" else np.array(rows, kind.lower()).tobytes()
        for text, (kind, rows) in zip(texts, sent, strict=True)
    ]
    forms = [None if kind == "JSON" else TensorForm(kind, (2,)) for kind, _ in sent]

    counts = [len(rows) for _, rows in sent]
    reply, answers = run(to, bodies, counts, forms=compact_forms(forms), limit_rows=limit_rows)

    assert (set(reply.statuses), reply.worked) == ({200}, True)
    assert answers == texts


@pytest.mark.parametrize("columns", [None, ["x"]])
def test_values_of_a_column_stay_what_they_are_alone(columns: list[str] | None) -> None:
    """Where dtypes differ, the column has the values of each request alone."""
    truth, number = [ColumnsForm((("x", ListForm(kind, ())),)) for kind in ("BOOL", "INT64")]
    kinds: list[tuple[bytes, Form]] = [
        (b'{"x":1.5}', None),
        (join_columns([b"true"]), truth),
        (join_columns([b"2"]), number),
        (b'{"x":null}', None),
        (b"a\n", TableForm("x")),
        (join_columns([b"false"]), truth),
    ]

    def merged(sent: Sequence[tuple[bytes, Form]]) -> pd.DataFrame:
        bodies, forms = zip(*sent, strict=True)
        frame = merge(DataFrame(columns=columns), BatchRequests(bodies, [1] * len(sent), forms))
        assert isinstance(frame, pd.DataFrame)
        return frame

    alone = [str(merged([one]).x[0]) for one in kinds]
    assert alone == ["1.5", "True", "2.0", "nan", "a", "False"]
    for places in (range(len(kinds)), *permutations(range(len(kinds)), 2)):
        found = merged([kinds[at] for at in places]).x
        assert list(map(str, found)) == [alone[at] for at in places]
    assert merged([kinds[0], kinds[2]]).x.dtype == "float64"
    assert merged([kinds[1], kinds[5]]).x.dtype == bool


def test_a_bad_body_of_one_form_leaves_those_of_the_others_alone() -> None:
    bodies = [pairs(1), b"[2,3]", b"[4]", pairs(13, 0), pairs(5, 6), b"x", b"[7,8]"]
    forms = [None if body[:1] in b"[x" else PAIRS for body in bodies]

    reply, answers = run("same", bodies, forms=forms)

    assert reply.statuses == [400, 200, 400, 500, 200, 400, 200]
    assert [answers[at] for at in (1, 4, 6)] == ["[2,3]", "[5,6]", "[7,8]"]


@pytest.mark.parametrize(
    ("to", "bodies", "limit_rows", "forms"),
    [
        ("single", [b"1", b"2"], 100, (ListForm("FP32", ()),)),
        ("rounded", [b"1", b"2"], 1, (ListForm("INT64", ()),)),
        ("rounded", [b"1", b"2.5"], 100, (ListForm("FP32", ()),)),
        ("rounded", [b"1", b"2.5"], 1, (ListForm("INT64", ()), ListForm("FP32", ()))),
        ("echo", [b"1", b"2"], 100, (None,)),
        ("single", [b"x"], 100, (None,)),
    ],
)
def test_the_form_of_results_is_told(
    to: str, bodies: list[bytes], limit_rows: int, forms: tuple[ListForm | None, ...]
) -> None:
    reply, _ = run(to, bodies, limit_rows=limit_rows)

    assert reply.forms == forms


@pytest.mark.parametrize("raw", [["tensors"], ["tensors", ""]])
@pytest.mark.parametrize("to", ["named", "objects"])
def test_a_name_that_no_message_can_have_is_a_wrong_result(to: str, raw: list[Any]) -> None:
    reply, answers = run(to, [b"1", b"2"][: len(raw)], raw=raw)

    assert reply.statuses == [500] * len(raw)
    assert {one.error for one in reply.exceptions} == {"WrongResult"}
    assert encode_frame(reply, [one.encode() for one in answers])
