"""Rows of different lengths as one array."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncork
from uncork import Service, api, context
from uncork.adapters import Json
from uncork.testing import client

IDS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.lists(IDS, max_size=20), min_size=1, max_size=10)


@given(rows=ROWS, as_arrays=st.booleans(), value=st.integers(-9, 9))
def test_rows_are_padded_to_the_longest(rows: list[list[int]], value: int, *, as_arrays: bool) -> None:
    given_rows = [np.array(row, np.int64) for row in rows] if as_arrays else rows
    padded, mask = uncork.pad(given_rows, value=value)

    width = max(map(len, rows))
    assert padded.tolist() == [row + [value] * (width - len(row)) for row in rows]
    assert mask.tolist() == [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    assert padded.shape == mask.shape == (len(rows), width)
    assert padded.dtype == mask.dtype == np.int64


@given(rows=ROWS, allowed=st.lists(st.integers(1, 30), max_size=4).map(lambda lengths: [*lengths, 20]))
def test_rows_are_padded_to_an_allowed_length(rows: list[list[int]], allowed: list[int]) -> None:
    padded, mask = uncork.pad(rows, allowed_lengths=allowed)

    longest = max(map(len, rows))
    assert padded.shape[1] == min(length for length in allowed if length >= longest)
    assert [row[is_value == 1].tolist() for row, is_value in zip(padded, mask, strict=True)] == rows


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float32", "int64", bool])
def test_the_array_has_the_type(dtype: Any) -> None:
    padded, mask = uncork.pad([[1], [], [0, 1]], dtype=dtype)

    assert padded.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert padded.dtype == dtype
    assert mask.dtype == np.int64


class Compiled(Service):
    """Returns the shape of its call, and the costs of its rows."""

    @api(input=Json(), cost="n", allowed_lengths=[4, 8], allowed_batch_sizes=[1, 4], mb_max_batch_size=100)
    def shape(self, rows: list[Any]) -> list[Any]:
        padded, _ = uncork.pad([[1] * row["n"] for row in rows])
        return [[padded.shape, context().costs, context().allowed_lengths]] * len(rows)

    @api(input=Json(), cost="n", allowed_lengths=[4, 8])
    def explicit(self, rows: list[Any]) -> list[Any]:
        padded, _ = uncork.pad([[1] * row["n"] for row in rows], allowed_lengths=[])
        return [padded.shape[1]] * len(rows)


def test_a_handler_pads_to_the_lengths_of_its_api() -> None:
    with client(Compiled, policy="fixed:50") as c:
        [one] = c.post_all("/shape", json=[{"n": 3}])
        many = c.post_all("/shape", json=[{"n": 1}, {"n": 5}, {"n": 2}])
        explicit = c.post("/explicit", json={"n": 3})

    assert one.json() == [[1, 4], [3], [4, 8]]
    for reply in many:
        shape, costs, _ = reply.json()
        assert shape == [4, 8]
        assert costs == [1, 5, 2, 2]
    assert json.loads(explicit.content) == 3
