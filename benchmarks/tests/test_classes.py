"""The benchmarks of two classes."""

import pytest

from benchmarks.classes import class_cells, shares, sheet_of, summary


@pytest.mark.parametrize("bulk_rows", [None, 256.0])
def test_bulk_gets_what_the_goal_leaves(bulk_rows: float | None) -> None:
    cells = [cell for cell in class_cells() if cell.intercept_ms == 1.0 and cell.workers == 1][:2]
    found = [shares(cell, seeds=[1], bulk_rows=bulk_rows) for cell in cells]
    assert all(0.9 < got.in_goal <= 1 and 0.5 < got.to_bound < 1.5 for got in found)
    assert len(sheet_of(zip(cells, found, strict=True)).rows) == 2
    assert summary(cells, found)[0] == "p99 within the goal in 2 of 2"
