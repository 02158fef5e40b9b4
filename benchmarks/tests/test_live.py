"""Settings and table of scripts/bench live."""

import pytest

from benchmarks.live import SETTINGS, Setting, simulated
from benchmarks.services.policies import Policies
from uncork_dispatcher.simulator import ALL_POLICIES
from uncork_loadtests.compare import Interval
from uncork_workers.definition.service import find_apis

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


def test_a_gateway_has_an_api_for_every_policy() -> None:
    settings = {api.description.route: api.description.settings for api in find_apis(Policies)}

    assert all(settings[f"/{policy}"].policy == policy for policy in ALL_POLICIES)
