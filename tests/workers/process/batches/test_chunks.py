"""Allowed batch sizes: padding of handler calls."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import DataFrame, Json, NdArray, Request, RequestBatch
from uncork_workers.definition.outputs.responses import Rejected
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.chunks import CallSizes, filled
from uncork_workers.wire.schema import ApiSettings
from uncork_workers.wire.values import DefinitionError

SIZES = (1, 4, 6)
POISON = 13


class Compiled(Service):
    """Records the rows of every call. The sizes in its code are overridden by those of the batch."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @api(input=Json())
    def items(self, items: list[Any]) -> list[Any]:
        self.seen.append(list(items))
        if POISON in items:
            raise ValueError("poison")
        return [Rejected(422, "odd") if item % 2 else item for item in items]

    @api(input=NdArray(dtype="int64", shape=()), allowed_batch_sizes=[1, 8, 32])
    def arrays(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.seen.append(rows.tolist())
        return rows * 10

    @api(input=DataFrame(columns=["a"]), allowed_batch_sizes=[3])
    def frames(self, frame: pd.DataFrame) -> pd.DataFrame:
        assert list(frame.index) == list(range(len(frame)))
        self.seen.append(frame["a"].astype(int).tolist())
        return frame


class Changing(Service):
    @api(input=Json(), allowed_batch_sizes=[8])
    def predict(self, items: list[Any]) -> list[Any]:
        for item in items:
            item["n"].append(0)
        return [item.pop("n") for item in items]


class Tensor:
    """An array of another library."""

    shape = (1,)

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: Any) -> Tensor:
        return Tensor(self.values[at])


class Locked:
    """A row that cannot be copied."""

    def __deepcopy__(self, memo: object) -> Any:
        raise TypeError("locked")


def run(
    to: str, values: list[Any], *, sizes: tuple[int, ...] | None = SIZES
) -> tuple[list[Any], list[int], list[Any]]:
    """Run one request per value; return what the handler saw, the statuses and the responses."""
    service = Compiled()
    limit_rows = 1000 if sizes is None else sizes[-1]
    bodies = [json.dumps(value).encode() for value in values]
    reply, answers = run_batch(service, to, *bodies, limit_rows=limit_rows, allowed_batch_sizes=sizes)
    told = [
        json.loads(answer) if status == 200 else answer
        for status, answer in zip(reply.statuses, answers, strict=True)
    ]
    return service.seen, reply.statuses, told


@given(count=st.integers(1, 20))
def test_the_last_row_fills_up_and_its_copies_are_dropped(count: int) -> None:
    values = list(range(count))
    seen, statuses, answers = run("arrays", values)

    assert {len(call) for call in seen} <= set(SIZES)
    assert statuses == [200] * count
    assert answers == [10 * value for value in values]
    assert seen[-1][-1] == values[-1]
    assert [value for call in seen for value in dict.fromkeys(call)] == values


def test_lists_and_tables_are_filled_up_too() -> None:
    assert run("items", [2, 4, 5]) == ([[2, 4, 5, 5]], [200, 200, 422], [2, 4, b"odd"])
    seen, _, answers = run("frames", [{"a": 1}, {"a": 2}])

    assert seen == [[1, 2, 2, 2]]
    assert answers == [{"a": 1.0}, {"a": 2.0}]


def test_the_index_of_each_table_counts_from_0() -> None:
    """Which the handler checks; columns that it adds are aligned by it."""
    seen, statuses, _ = run("frames", [{"a": number} for number in range(4)], sizes=(1, 3))

    assert (seen, statuses) == ([[0, 1, 2], [3]], [200] * 4)


def test_copies_are_rows_of_their_own() -> None:
    """The handler may change its rows; and requests stay requests."""
    reply, answers = run_batch(Changing(), "predict", *[b'{"n":[1]}'] * 3, allowed_batch_sizes=(8,))
    assert (reply.statuses, answers) == ([200] * 3, [b"[1,0]"] * 3)

    for rows in ([Locked()], Tensor([1]), np.ones(1), RequestBatch([Request(body=b'{"n":1}')])):
        copies = filled(rows, 3)
        assert (len(copies), type(copies)) == (3, type(rows))
    assert copies.payloads == [{"n": 1}] * 3
    assert copies.payloads[1] is not copies.payloads[2]


@pytest.mark.parametrize(
    ("sizes", "rows", "calls"),
    [((1, 8, 64), 40, [64]), ((2, 4), 5, [4, 2]), ((16,), 3, [16]), (None, 3, [3])],
)
def test_the_sizes_in_force_count_not_those_of_the_code(
    sizes: tuple[int, ...] | None, rows: int, calls: list[int]
) -> None:
    for to in ("items", "arrays"):
        seen, _, answers = run(to, [2] * rows, sizes=sizes)
        assert [len(call) for call in seen] == calls
        assert len(answers) == rows


@pytest.mark.parametrize(
    "lengths", [(), (4, 1), (1, 1), (0, 2), (True,), (1e-9, 2e-9), (2e9,), (float("nan"),), "12", 5]
)
def test_lengths_are_rising_numbers(lengths: Any) -> None:
    message = "allowed_lengths must be a list of increasing numbers, above 0 and at most 1000000000, got"
    with pytest.raises(DefinitionError, match=message):
        ApiSettings(allowed_lengths=lengths, cost="n").check("predict")
    ApiSettings(allowed_lengths=(0.5, 16), cost="n").check("predict")


@pytest.mark.parametrize(("size", "limit"), [(1000, 6), (5, 5), (6, 6)])
def test_the_largest_size_is_a_limit(size: int, limit: int) -> None:
    assert ApiSettings(mb_max_batch_size=size, allowed_batch_sizes=SIZES).limit_rows == limit
    assert ApiSettings(mb_max_batch_size=size).limit_rows == size
    assert ApiSettings(mb_max_batch_size=size, allowed_batch_sizes=SIZES, cost=2).limit_rows == size


@given(
    costs=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    limit=st.integers(1, 60),
    most_rows=st.none() | st.integers(1, 9),
)
def test_chunks_obey_both_limits(costs: list[int], limit: int, most_rows: int | None) -> None:
    """They are the longest that do, in order; without costs, each row costs 1."""
    for weighed in (True, False):
        of_rows = costs if weighed else [1] * len(costs)
        sizes = CallSizes(allowed=None if most_rows is None else [most_rows])
        chunks = sizes.cut(len(costs), costs if weighed else [], limit=limit)

        done = 0
        for rows, cost in chunks:
            assert cost == sum(of_rows[done : done + rows])
            assert rows == 1 or (cost <= limit and rows <= (most_rows or rows))
            done += rows
            more = of_rows[done : done + 1]
            assert not more or cost + more[0] > limit or rows == most_rows
        assert done == len(costs)
