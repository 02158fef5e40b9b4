"""Plots of simulations: that the right lines are in them. What they look like is for eyes."""

from pathlib import Path

import pytest

from tests.loadtests.charts import Chart, charts
from tests.uncork.cli.test_simulate import NAN, SMALL, comparison, measured, run
from uncork.cli.simulate.plots import draw
from uncork_dispatcher.simulator import Cell, Comparison
from uncork_dispatcher.simulator.compare import compared

pytest.importorskip("plotly")


def drawn(comparisons: list[Comparison], folder: Path) -> list[Chart]:
    draw(comparisons, folder / "plot.html")
    return charts(folder / "plot.html")


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    target = tmp_path / "plot.HTML"
    few = ("--load", 0.5, "--noise", 0, "--workers", 2, "--policy", "cork,fixed:0", *SMALL)
    result = run(*few, "--plot", target)

    assert result.exit_code == 0, result.output
    assert "<h1>5 + 0.1n ms, 2 workers, poisson arrivals</h1>" in target.read_text()
    assert [chart.names for chart in charts(target)] == [["cork", "fixed:0"]] * 2


@pytest.mark.parametrize(("goal_ms", "shown"), [(30.0, True), (5000.0, False)])
def test_latencies_are_drawn_against_load_in_its_order(tmp_path: Path, goal_ms: float, shown: bool) -> None:
    """With the goal where it is in sight: far away it would squeeze the lines."""
    cells = [Cell(intercept_ms=5, slope_ms=0.1, goal_ms=goal_ms, load=load) for load in (0.8, 0.2)]
    means = (40.0, 20.0)
    both = [comparison(c, cork=m, none=m + 1) for c, m in zip(cells, means, strict=True)]
    mean, p99 = drawn(both, tmp_path)

    assert mean.names == p99.names == ["cork", "none", *([f"goal {goal_ms:g} ms"] * shown)]
    assert [(trace["x"], trace["y"]) for trace in mean.traces[:2]] == [
        ([0.2, 0.8], [20, 40]),
        ([0.2, 0.8], [21, 41]),
    ]
    assert p99.traces[0]["y"] == [40, 80]


def test_a_closed_loop_is_drawn_against_clients(tmp_path: Path) -> None:
    cells = [Cell(intercept_ms=5, slope_ms=0.1, clients=count) for count in (3, 70)]
    (chart,) = drawn([comparison(cell, cork=10) for cell in cells], tmp_path)

    assert (chart.traces[0]["x"], chart.traces[0]["y"]) == ([3, 70], [100, 100])
    assert chart.layout["xaxis"]["ticktext"] == ["3", "70"]
    assert chart.layout["yaxis"]["title"]["text"] == "rows per second"


def test_what_was_not_seen_is_left_out(tmp_path: Path) -> None:
    cell = Cell(intercept_ms=5, slope_ms=0.1, load=0.5)
    nothing = [compared(cell, {"none": [measured(mean_ms=NAN)]}, base="none")]

    assert [chart.traces[0]["y"] for chart in drawn(nothing, tmp_path)] == [[None], [None]]
