"""Pictures: that the right lines are in them. What they look like is for eyes."""

import re
from pathlib import Path

import pytest

from tests.uncork.cli.test_simulate import NAN, SMALL, comparison, measured, run
from uncork.cli.simulate.plots import draw
from uncork_dispatcher.simulator import Cell, Comparison
from uncork_dispatcher.simulator.compare import compared


def drawn(comparisons: list[Comparison], folder: Path) -> str:
    """The picture as SVG, which keeps text as text."""
    target = folder / "picture.svg"
    draw(comparisons, target)
    return target.read_text()


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_ending_says_the_format(tmp_path: Path, ending: str, begins: bytes) -> None:
    """The others here have a picture as SVG."""
    target = tmp_path / f"picture.{ending}"
    result = run("--load", 0.5, "--policy", "fixed:0", "--seeds", 1, *SMALL, "--plot", target)

    assert result.exit_code == 0, result.output
    assert target.read_bytes().startswith(begins)


@pytest.mark.parametrize(("goal_ms", "shown"), [(30.0, True), (5000.0, False)])
def test_a_goal_is_drawn_where_it_is_in_sight(tmp_path: Path, goal_ms: float, shown: bool) -> None:
    """Far away it would squeeze the lines."""
    cells = [Cell(intercept_ms=5, slope_ms=0.1, goal_ms=goal_ms, load=load) for load in (0.2, 0.8)]
    means = (20.0, 40.0)
    text = drawn([comparison(c, cork=m, none=m) for c, m in zip(cells, means, strict=True)], tmp_path)

    assert (f"goal {goal_ms:g} ms" in text) == shown
    assert all(f">{word}<" in text for word in ("mean latency", "99th percentile", "cork", "none"))


def test_a_closed_loop_is_drawn_against_clients(tmp_path: Path) -> None:
    cells = [Cell(intercept_ms=5, slope_ms=0.1, clients=count) for count in (3, 70)]
    text = drawn([comparison(cell, cork=10) for cell in cells], tmp_path)

    assert {">3<", ">70<", ">rows per second<"} <= set(re.findall(r">[^<>\n]+<", text))


def test_what_was_not_seen_is_left_out(tmp_path: Path) -> None:
    cell = Cell(intercept_ms=5, slope_ms=0.1, load=0.5)
    nothing = [compared(cell, {"none": [measured(mean_ms=NAN)]}, base="none")]

    assert ">none<" in drawn(nothing, tmp_path)
