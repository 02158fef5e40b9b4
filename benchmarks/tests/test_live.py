"""Settings and table of scripts/bench live."""

import pytest
import typer

from benchmarks.live import SETTINGS, Setting, parse_settings, rows_of, simulated
from benchmarks.services.policies import Policies
from uncork_dispatcher.simulator import ALL_POLICIES
from uncork_loadtests.compare import METRICS, Comparison, Result, Rounds
from uncork_loadtests.intervals import Interval
from uncork_workers.definition.service import find_apis

pytestmark = pytest.mark.long_run

LIGHT = Setting(intercept_ms=10, slope_ms=0.2, workers=2, rate=50)


def seen(setting: Setting, ratios: dict[str, Interval | None]) -> Comparison:
    """A comparison with these ratios."""
    results = [
        Result(policy=name, medians=dict.fromkeys(METRICS), ratios=dict.fromkeys(METRICS, ratio))
        for name, ratio in ratios.items()
    ]
    return Comparison(target="sleep", plan=setting.plan(1.0), rounds=Rounds(whole=[]), results=results)


def test_settings_are_chosen_by_number() -> None:
    assert parse_settings("3, 1") == [SETTINGS[2], SETTINGS[0]]


@pytest.mark.parametrize("only", ["", "0", "13", "1,,2", "-1", "x"])
def test_other_numbers_are_refused(only: str) -> None:
    with pytest.raises(typer.BadParameter, match="settings are numbered 1 to 12"):
        parse_settings(only)


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


def test_a_row_tells_both_ratios() -> None:
    told = rows_of(LIGHT, seen(LIGHT, {"cork": Interval(median=0.9, low=0.85, high=0.951), "aimd": None}))

    assert [row[1] for row in told] == LIGHT.policies[1:]
    by_policy = {row[1]: row for row in told}
    assert by_policy["cork"][2:4] == ["mean latency", "0.900 (0.850 .. 0.951)"]
    assert by_policy["aimd"][3] == by_policy["fixed:20"][3] == "-"
    assert float(by_policy["fixed:20"][4].partition(" ")[0]) > 1.5


def test_one_worker_is_compared_by_every_figure() -> None:
    setting = SETTINGS[8]
    told = rows_of(setting, seen(setting, {"cork": Interval(median=1.01, low=1.004, high=1.0155)}))

    assert str(setting) == "5 + 0.1 n ms, 1 worker, Poisson 400/s"
    assert [row[1:4] for row in told] == [
        ["cork", figure, "1.010 (1.004 .. 1.016)"]
        for figure in ("mean latency", "p50", "p99", "rows per batch")
    ]
    assert all(0.9 < float(row[4].partition(" ")[0]) < 1.1 for row in told)


def test_a_gateway_has_an_api_for_every_policy() -> None:
    settings = {api.description.route: api.description.settings for api in find_apis(Policies)}

    assert all(settings[f"/{policy}"].policy == policy for policy in ALL_POLICIES)
