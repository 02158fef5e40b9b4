"""The benchmarks of two classes."""

import pytest

from benchmarks.classes import busy_gateway, class_cells, shares, sheet_of, summary
from benchmarks.classes_live import GROUPS, WAYS, plans
from benchmarks.services.classes import GOAL_MS, Classes
from uncork_workers.definition.service import find_apis


@pytest.mark.parametrize("bulk_rows", [None, 256.0])
def test_bulk_gets_what_the_goal_leaves(bulk_rows: float | None) -> None:
    cells = [cell for cell in class_cells() if cell.intercept_ms == 1.0 and cell.workers == 1][:2]
    found = [shares(cell, seeds=[1], bulk_rows=bulk_rows) for cell in cells]
    assert all(0.9 < got.in_goal <= 1 and 0.5 < got.to_bound < 1.5 for got in found)
    assert len(sheet_of(zip(cells, found, strict=True)).rows) == 2
    assert summary(cells, found)[0] == "p99 within the goal in 2 of 2"


def test_a_busy_gateway_costs_bulk() -> None:
    [cell] = [cell for cell in class_cells() if (cell.slope_ms, cell.load, cell.goal_ms) == (0.5, 0.5, 100)][
        :1
    ]
    idle, busy = [shares(each, seeds=[1]) for each in (cell, busy_gateway(cell))]
    assert busy.in_goal > 0.99
    assert 0.8 < busy.bulk_per_s / idle.bulk_per_s < 1


def test_a_gateway_serves_each_way() -> None:
    apis = {api.description.route: api.description for api in find_apis(Classes)}
    for name in (*WAYS, *GROUPS):
        for plan in plans(name, "http://service", 1.0):
            api = apis[plan.url.removeprefix("http://service")]
            assert all(value in (api.class_names or ()) for _, value in plan.headers)
            assert plan.goal_s is None or name in GROUPS or api.settings.mb_max_latency == GOAL_MS
