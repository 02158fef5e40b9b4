"""Live against simulated: what is compared, and how it is told. The measuring itself is that of compare."""

import pytest
import typer

from uncork_loadtests.compare import METRICS, Comparison, Result, Rounds
from uncork_loadtests.intervals import Interval
from uncork_loadtests.live import SETTINGS, Setting, parse_settings, rows_of, simulated

LIGHT = Setting(intercept_ms=10, slope_ms=0.2, workers=2, rate=50)


def seen(setting: Setting, ratios: dict[str, Interval | None]) -> Comparison:
    """A comparison in which policies had these ratios."""
    results = [
        Result(policy=name, medians=dict.fromkeys(METRICS), ratios=dict.fromkeys(METRICS, ratio))
        for name, ratio in ratios.items()
    ]
    return Comparison(target="sleep", plan=setting.plan(1.0), rounds=Rounds(whole=[]), results=results)


def test_settings_are_chosen_by_number() -> None:
    """In the order in which they were asked for."""
    assert parse_settings("3, 1") == [SETTINGS[2], SETTINGS[0]]


@pytest.mark.parametrize("only", ["", "0", "9", "1,,2", "-1", "x"])
def test_other_numbers_are_refused(only: str) -> None:
    """The message says what there is."""
    with pytest.raises(typer.BadParameter, match="settings are numbered 1 to 8"):
        parse_settings(only)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_live_and_simulated_are_under_the_same_traffic(setting: Setting) -> None:
    """The rate of a cell is its load times what full batches carry."""
    cell, plan = setting.cell(), setting.plan(1.0)

    assert (cell.workers, cell.clients) == (setting.workers, plan.clients)
    if plan.rate is not None:
        assert cell.load is not None
        assert cell.load * cell.capacity == pytest.approx(plan.rate)
        assert cell.load < 1
    assert setting.policies[0] == "fixed:0"
    assert ("none" in setting.policies) == (plan.clients is not None)


def test_the_simulator_says_that_waiting_for_nothing_costs() -> None:
    """At a low rate a wait of 20 ms is most of the latency; the base is as good as itself."""
    ratios = simulated(LIGHT)

    assert ratios["fixed:0"] == 1.0
    assert ratios["fixed:20"] > 1.5
    assert 0.9 < ratios["cork"] < 1.05


def test_a_row_tells_both_ratios() -> None:
    """One for each policy but the base; a dash where no round counts."""
    told = rows_of(LIGHT, seen(LIGHT, {"cork": Interval(median=0.9, low=0.85, high=0.951), "aimd": None}))

    assert [row[1] for row in told] == LIGHT.policies[1:]
    by_policy = {row[1]: row for row in told}
    assert by_policy["cork"][2:4] == ["mean latency", "0.90 (0.85 .. 0.95)"]
    assert by_policy["aimd"][3] == by_policy["fixed:20"][3] == "-"
    assert float(by_policy["fixed:20"][4]) > 1.5
