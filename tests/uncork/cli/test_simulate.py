"""``uncork simulate`` in this process: what it prints, writes and draws, and what it refuses."""

import json
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.expected import printed
from tests.loadtests.charts import Chart, charts
from uncork.cli.app import app
from uncork.cli.simulate import command
from uncork.cli.simulate.plots import draw
from uncork.cli.simulate.tables import as_json, tables
from uncork_dispatcher.simulator import Cell, Comparison, Measured
from uncork_dispatcher.simulator.compare import compared

SMALL = ("--requests", "300", "--processes", "1")
NAN = float("nan")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def figures(*arguments: object) -> Any:
    result = run(*arguments, *SMALL, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def rows(output: str, policy: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if policy in line.split()]


def measured(mean_ms: float = 10.0, rows_per_s: float = 100.0, inside_goal: float = 1.0) -> Measured:
    return Measured(
        mean_ms=mean_ms,
        p50_ms=mean_ms,
        p99_ms=2 * mean_ms,
        long_p99_ms=3 * mean_ms,
        rows_per_s=rows_per_s,
        goodput_per_s=rows_per_s * inside_goal,
        batch_rows=4.0,
        batches=10.0,
        answered=100.0,
        shed=0.0,
        inside_goal=inside_goal,
        utilisation=0.5,
        padding_share=0.25,
    )


def comparison(cell: Cell, **mean_ms: float) -> Comparison:
    seen = {policy: [measured(ms, 1000 / ms)] for policy, ms in mean_ms.items()}
    return compared(cell, seen, base=next(iter(seen)))


def test_a_second_class_has_its_throughput() -> None:
    """All other numbers are about the first class. By default only cork is simulated, as it knows classes."""
    bulk = ("--load", "0.5", "--goal-ms", "100", "--seeds", "1", "--bulk-clients", "32", "--bulk-rows", "8")
    output = run(*bulk, *SMALL).output
    assert "bulk 32 x 8" in output
    assert "bulk rows/s" in output
    [cell] = figures(*bulk)["cells"]
    [(policy, found)] = cell["policies"].items()
    assert (policy, found["average"]["bulk_per_s"] > 1000, found["average"]["in_goal"]) == ("cork", True, 1.0)
    assert found["average"]["rows_per_s"] == pytest.approx(cell["rate_per_s"], rel=0.2)
    assert "bulk" not in run("--load", "0.5", "--policy", "cork", "--seeds", "1", *SMALL).output


def test_each_load_gets_a_table_with_ratios_to_release_when_free() -> None:
    """The header is the cell; the base has no ratio; two seeds make an interval."""
    result = run("--load", "0.2,0.8", "--policy", "cork,fixed:0", "--seeds", 2, *SMALL)

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if "W=1 poisson" in line] == [
        "5+0.1n noise 0.1 W=1 poisson 0.2",
        "5+0.1n noise 0.1 W=1 poisson 0.8",
    ]
    assert [words[-2:] for words in rows(result.stdout, "fixed:0")[-2:]] == [["base", "base"]] * 2
    assert all(words[-1].startswith("±") for words in rows(result.stdout, "cork"))
    assert len(rows(result.stdout, "cork")) == 2


def test_one_seed_has_no_interval() -> None:
    result = run("--clients", "4", "--policy", "fixed:0,none", "--seeds", 1, *SMALL)

    assert result.exit_code == 0, result.output
    assert "±" not in result.stdout
    assert "rows/s ratio" in result.stdout
    assert "p99 ratio" not in result.stdout
    assert float(rows(result.stdout, "none")[0][-1]) < 0.7


def test_nothing_but_text_goes_into_a_pipe(tmp_path: Path) -> None:
    trace = tmp_path / ("[bold]" + "a" * 200)
    trace.write_text("0\n0.01\n0.02\n")
    result = run("--arrivals", f"replay:{trace}", "--policy", "fixed:0", "--seeds", 1, *SMALL)

    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert f"replay:{trace} " in result.stdout
    assert result.stderr == ""


def test_json_has_every_figure_of_every_seed() -> None:
    seen = figures("--load", "0.5", "--policy", "cork,fixed:0", "--seeds", 2, "--first-seed", 7)

    assert seen["seeds"] == [7, 8]
    assert (seen["base"], seen["policies"], seen["requests"]) == ("fixed:0", ["cork", "fixed:0"], 300)
    assert seen["uncork"]
    (cell,) = seen["cells"]
    assert (cell["name"], cell["load"], cell["workers"]) == ("5+0.1n noise 0.1 W=1 poisson 0.5", 0.5, 1)
    cork = cell["policies"]["cork"]
    assert [one["seed"] for one in cork["by_seed"]] == [7, 8]
    assert cork["average"]["mean_ms"] == pytest.approx(sum(one["mean_ms"] for one in cork["by_seed"]) / 2)
    assert cork["ratios"]["mean"]["low"] <= cork["ratios"]["mean"]["value"] <= cork["ratios"]["mean"]["high"]


def test_json_goes_to_a_file_beside_the_table(tmp_path: Path) -> None:
    """With a name, both are there; an interval that is not known is null."""
    target = tmp_path / "figures.json"
    result = run("--load", "0.5", "--policy", "cork,fixed:0", "--seeds", 1, *SMALL, "--json", target)

    assert result.exit_code == 0, result.output
    assert rows(result.stdout, "cork")
    ratios = json.loads(target.read_text())["cells"][0]["policies"]["cork"]["ratios"]
    assert ratios["p99"]["high"] is None
    assert ratios["p99"]["value"] > 0


def test_the_first_policy_is_the_base_where_release_when_free_is_not_asked_for() -> None:
    seen = figures("--load", "0.2", "--policy", "none, cork", "--policy", "cork", "--seeds", 1)

    assert (seen["base"], seen["policies"]) == ("none", ["none", "cork"])


def test_the_options_of_a_closed_loop_reach_the_cell() -> None:
    (cell,) = figures(
        *("--clients", "3,3", "--round-trip-ms", 2, "--think-ms", 4, "--workers", 2, "--goal-ms", 200),
        *("--intercept-ms", 7, "--slope-ms", 0.5, "--noise", 0, "--max-batch-size", 8),
        *("--transport-ms", 3, "--request-ms", 0.5),
        *("--policy", "fixed:0", "--seeds", 1),
    )["cells"]

    assert (cell["clients"], cell["round_trip_ms"], cell["think_ms"], cell["workers"]) == (3, 2, 4, 2)
    assert (cell["intercept_ms"], cell["slope_ms"], cell["noise_cv"], cell["limit_rows"]) == (7, 0.5, 0, 8)
    assert (cell["goal_ms"], cell["load"], cell["transport_ms"], cell["request_ms"]) == (200, None, 3, 0.5)


def test_lengths_reach_the_cell_and_add_columns() -> None:
    """Full batches are 64 rows of average length if no limit is given."""
    lengths = ("--lengths", "bimodal:16:512:0.1", "--clients", 8, "--policy", "fixed:0", "--seeds", 1)
    (cell,) = figures(*lengths, "--padding", 0.5)["cells"]
    (limited,) = figures(*lengths, "--max-batch-size", 700)["cells"]
    output = run(*lengths, *SMALL).stdout

    assert (cell["lengths"], cell["padding"], cell["limit_rows"]) == ("bimodal:16:512:0.1", 0.5, 4199)
    assert (limited["padding"], limited["limit_rows"]) == (1.0, 700)
    average = cell["policies"]["fixed:0"]["average"]
    assert 0 < average["padding_share"] < 0.9
    assert average["long_p99_ms"] > average["p50_ms"]
    assert "at most 4199 units of length per batch" in output
    headings = next(line for line in output.splitlines() if line.startswith("policy")).split("  ")
    assert {"long p99", "padding %"} <= {heading.strip() for heading in headings}


def test_rows_that_cost_the_same_have_no_columns_about_lengths() -> None:
    result = run("--clients", 8, "--policy", "fixed:0", "--seeds", 1, *SMALL)

    assert "at most 64 rows per batch" in result.stdout
    assert "long p99" not in result.stdout
    assert "padding" not in result.stdout


def test_recorded_arrivals_come_as_recorded_or_at_a_load(tmp_path: Path) -> None:
    """Without a load at their own rate, in whole passes; with one at its rate."""
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"{100 + at / 50},ignored\n" for at in range(11)))
    common = ("--arrivals", f"replay:{trace}", "--policy", "fixed:0", "--seeds", 1)
    result = run(*common, "--processes", 1, "--json", "-")
    assert result.exit_code == 0, result.output
    own = json.loads(result.stdout)

    assert own["cells"][0]["rate_per_s"] == pytest.approx(50)
    assert own["requests"] % 11 == 0
    assert own["requests"] >= 2000
    assert [cell["load"] for cell in figures(*common, "--load", "0.2,0.3")["cells"]] == [0.2, 0.3]


def test_a_pool_that_breaks_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1, and the message has no traceback."""
    monkeypatch.setattr(command, "run_cells", raising(BrokenProcessPool("killed")))
    result = run()

    assert result.exit_code == 1
    assert (
        result.stderr == "uncork simulate: a simulation process was killed, "
        "perhaps for lack of memory; try fewer --processes\n"
    )


def test_an_interrupt_ends_it_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_cells", raising(KeyboardInterrupt()))
    result = run()

    assert (result.exit_code, result.output) == (130, "")


def test_a_target_that_fails_late_does_not_cost_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The exit code is still 1."""
    monkeypatch.setattr(command, "draw", raising(OSError(28, "No space left on device")))
    result = run("--load", 0.2, "--policy", "fixed:0", "--seeds", 1, *SMALL, "--plot", tmp_path / "a.html")

    assert result.exit_code == 1
    assert "No space left" in result.stderr
    assert rows(result.stdout, "fixed:0")


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_what_was_not_seen_is_a_dash_and_null() -> None:
    """Nobody answered: no latency, and a ratio that is not known."""
    cell = Cell(intercept_ms=5, slope_ms=0.1, load=0.5, goal_ms=1.0)
    seen = [compared(cell, {"fixed:0": [measured()], "none": [measured(mean_ms=NAN)]}, base="fixed:0")]
    figures = json.loads(as_json(seen, seeds=[1], requests=None))

    text = printed(*tables(seen, seeds=[1]))
    assert rows(text, "none")[0] == [
        "none",
        "-",
        "-",
        "-",
        "100",
        "4.0",
        "0",
        "100",
        "-",
        "-",
    ]
    assert figures["cells"][0]["policies"]["none"]["average"]["mean_ms"] is None
    assert figures["cells"][0]["policies"]["none"]["ratios"]["mean"]["value"] is None


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
