"""The ways to parse that scripts/bench parse compares are equivalent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.costs.parse_cost import sheet
from benchmarks.costs.parse_ways import CASES, COLUMNS, Case, EachAlone
from uncork_workers.definition.adapters.base import Adapter

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)


class Noting(Adapter):
    """Records its arguments."""

    kind = "json"

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []

    def merge(self, bodies: Sequence[bytes]) -> list[bytes]:
        """The bodies themselves."""
        self.calls.append(list(bodies))
        return list(bodies)


@EVERY_CASE
@pytest.mark.parametrize("requests", [1, 7])
def test_all_ways_parse_the_same(case: Case, requests: int) -> None:
    bodies = case.bodies(requests)
    merged, *others = (pd.DataFrame(case.parse(way, bodies)()) for way in case.ways)

    assert merged.shape == (requests, len(COLUMNS))
    assert merged.to_numpy().std() > 0
    for other in others:
        pd.testing.assert_frame_equal(other, merged)


@EVERY_CASE
def test_all_ways_are_answered_the_same(case: Case) -> None:
    bodies = case.bodies(5)
    first = pd.DataFrame(case.parse("merged", bodies)()).iloc[:, 0]

    for way in case.ways:
        answers = [float(answer) for answer in case.execute(way, bodies)()]
        np.testing.assert_allclose(answers, first, rtol=1e-6)


def test_each_alone_is_parsed_alone() -> None:
    adapter, joined = Noting(), []

    def join(parts: Sequence[Any]) -> int:
        joined.append(list(parts))
        return 7

    assert EachAlone(adapter, join).merge([b"1", b"2"]) == 7
    assert adapter.calls == [[b"1"], [b"2"]]
    assert joined == [[[b"1"], [b"2"]]]


def test_the_table_has_a_row_for_each_size_and_work() -> None:
    found = sheet(CASES[-1], rounds=1)

    sizes = [size for size in ("1", "10", "100", "1000") for _ in range(2)]
    assert [row[:2] for row in found.rows] == list(map(list, zip(sizes, ["parse", "batch"] * 4, strict=True)))
    assert {len(row) for row in found.rows} == {len(found.columns)}
    assert [note.partition(": mark")[0] for note in found.notes] == [
        f"{work}, 100 requests, {way} / merged"
        for work in ("parse", "batch")
        for way in ("each alone", "by hand")
    ]
    assert all(note.endswith("at least 3, too few rounds") for note in found.notes)
