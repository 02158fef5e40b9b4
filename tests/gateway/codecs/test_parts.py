"""Requests divided into parts: each part is a request with some of the rows."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.cost.budget import Bytecodes
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.codecs.base import of_columns, of_tensor
from uncork_gateway.codecs.cost import Weigh, make_weigh, unweighed
from uncork_gateway.codecs.parts import divided
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import encoded

ROWS = 7
NUMBERS = [[row, -row] for row in range(ROWS)]
NAMES = [f'row {row}, "[{row}]"' for row in range(ROWS)]


def tensor(rows: range, kind: str) -> Tensor:
    if kind == "texts":
        return Tensor("s", "BYTES", (len(rows),), "binary", encoded([NAMES[row] for row in rows], "BYTES"))
    values = [value for row in rows for value in NUMBERS[row]]
    if kind == "binary":
        return Tensor("b", "FP32", (len(rows), 2), "binary", encoded(list(map(float, values)), "FP32"))
    return Tensor(
        "f", "INT64", (len(rows), 2), "flat", json.dumps(values, separators=(",", ":"))[1:-1].encode()
    )


def table(rows: range) -> bytes:
    return b"n,s\r\n" + b"".join([b'%d,"a\r\n%d"\r\n' % (row, row) for row in rows])


READ: dict[str, Any] = {
    "json": lambda rows: make_codec({"kind": "json"}, "bytes").marshal(
        [msgspec.json.encode({"n": row, "s": NAMES[row]}) for row in rows]
    ),
    "nan": lambda rows: make_codec({"kind": "json"}).marshal([b"[NaN, %d]" % row for row in rows]),
    "lists": lambda rows: make_codec({"kind": "ndarray", "shape": [2]}).decode(
        json.dumps([NUMBERS[row] for row in rows]).encode()
    ),
    "csv": lambda rows: make_codec({"kind": "dataframe", "columns": ["n", "s"]}, 0.5).decode(
        table(rows), "text/csv"
    ),
    **{
        kind: lambda rows, kind=kind: of_tensor(tensor(rows, kind), unweighed)
        for kind in ("texts", "binary", "flat")
    },
    "columns": lambda rows: of_columns(
        [tensor(rows, kind) for kind in ("texts", "binary", "flat")], unweighed
    ),
}


def plain(payload: Marshalled) -> Marshalled:
    """Return the payload with JSON rows as Python writes them."""
    if payload.form is None:
        return msgspec.structs.replace(payload, body=json.dumps(json.loads(b"[%b]" % payload.body)).encode())
    return payload


@given(kind=st.sampled_from(sorted(READ)), count=st.integers(2, ROWS + 2))
def test_each_part_is_the_request_with_its_rows(kind: str, count: int) -> None:
    whole = msgspec.structs.replace(READ[kind](range(ROWS)), accept="text/csv", parameters=b"{}", group=b"1")
    found = divided(whole, count)
    assert [number for part in found.parts for number in part.rows] == list(range(ROWS))
    sizes = [len(part.rows) for part in found.parts]
    assert (len(sizes), max(sizes) - min(sizes) <= 1) == (min(count, ROWS), True)
    for rows, part in found.parts:
        alone = msgspec.structs.replace(
            READ[kind](rows), accept="text/csv", parameters=b"{}", group=b"1", locate=part.locate
        )
        assert plain(part) == plain(alone)
    assert msgspec.structs.replace(found, parts=()) == whole


@pytest.mark.parametrize("weigh", [unweighed, make_weigh(2.5)])
def test_equal_rows_are_cut_where_parts_end(weigh: Weigh) -> None:
    """Not into single rows."""

    def bytecodes(rows: int) -> int:
        columns = [Tensor("x", "INT8", (rows,), "binary", bytes(rows))] * 3
        whole = of_columns(columns, weigh)
        with Bytecodes() as counted:
            parts = divided(whole, 3).parts
        assert sum([part.payload.rows for part in parts]) == rows
        return counted.bytecodes

    assert bytecodes(3000) == bytecodes(300)


@pytest.mark.parametrize(("rows", "count"), [(1, 9), (5, 1)])
def test_one_part_is_the_request(rows: int, count: int) -> None:
    whole = READ["json"](range(rows))
    assert divided(whole, count) is whole


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20), st.integers(2, 6))
def test_rows_of_similar_cost_are_together(lengths: list[int], count: int) -> None:
    """No part has much more than its share of the cost, or more than twice its share of the rows."""
    codec = make_codec({"kind": "json"}, "bytes")
    whole = codec.marshal([msgspec.json.encode("x" * length) for length in lengths])
    parts = divided(whole, count).parts
    costs = [list(part.payload.cost.of_rows) for part in parts]
    assert len(parts) <= 2 * count + 1
    assert list(chain(*costs)) == sorted(chain(*costs))
    assert sorted(row for part in parts for row in part.rows) == list(range(len(lengths)) if parts else [])
    for part in parts:
        texts = json.loads(b"[%b]" % part.payload.body)
        assert [len(text) for text in texts] == [lengths[row] for row in part.rows]
    assert whole.cost.total is not None
    for part, cost in zip(parts, costs, strict=True):
        share = 1 / min(count, len(lengths))
        assert len(part.rows) == 1 or sum(cost) <= whole.cost.total * share + max(cost)
        assert len(part.rows) <= max(1, 2 * share * len(lengths))


def test_errors_name_the_row_of_the_whole_request() -> None:
    whole = msgspec.structs.replace(
        READ["lists"](range(ROWS)), locate=lambda asked, place: f"instances {place}"
    )
    last = divided(whole, 3).parts[-1]
    assert last.payload.path_to(RowPath(1, (0,))) == "instances `$[5][0]`"
