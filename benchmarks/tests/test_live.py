"""Settings and table of scripts/bench live."""

import pytest

from benchmarks.live import SETTINGS, Setting, simulated
from uncork_loadtests.compare import Interval

pytestmark = pytest.mark.long_run

LIGHT = Setting(intercept_ms=10, slope_ms=0.2, workers=2, rate=50)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_live_and_simulated_are_under_the_same_traffic(setting: Setting) -> None:
    cell, plan = setting.cell(), setting.plan(1.0)

    assert (cell.workers, cell.clients) == (setting.workers, plan.clients)
    assert cell.sources == ("pool" if plan.clients is None else "clients")
    if plan.rate is not None:
        assert cell.load is not None
        assert cell.load * cell.capacity == pytest.approx(plan.rate)
        assert cell.load < 1
    assert setting.policies[0] == "fixed:0"
    assert ("none" in setting.policies) == (plan.clients is not None)


def test_the_simulator_says_that_waiting_for_nothing_costs() -> None:
    ratios = simulated(LIGHT)

    assert ratios["fixed:0"]["mean_ms"] == Interval(median=1.0, low=1.0, high=1.0)
    assert ratios["fixed:20"]["mean_ms"].low > 1.5
    assert 0.9 < ratios["cork"]["mean_ms"].median < 1.05
