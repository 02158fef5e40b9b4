"""Draw the simulations of the explanations again: ``python docs/pictures/simulations.py``.

It runs the commands that a page shows, which take some minutes, and writes open.svg and closed.svg. From some
cells of ``scripts/bench padding --cold``, it writes cold.svg.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from style import STYLE, headline, line_look, log_across, log_upwards

from benchmarks.padding.cold import SECONDS, cold_cells, cold_starts
from benchmarks.padding.tables import TRUTHS
from uncork_loadtests.reports.page import BLUE, DARK_GREY, GREEN, PURPLE, SKY_BLUE, VERMILION

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "explanation/dispatcher.md"
LOOKS = {
    "cork": (VERMILION, "o"),
    "fixed:0": (DARK_GREY, "s"),
    "cork-classic": (BLUE, "^"),
    "fixed:5": (SKY_BLUE, "v"),
    "fixed:1": (GREEN, "<"),
    "aimd": (PURPLE, "P"),
}


def simulated(plot: str) -> dict[str, Any]:
    """Run the command of the page that has `--plot` with this file, and return its figures."""
    commands = PAGE.read_text().replace("\\\n", " ").splitlines()
    (command,) = (line for line in commands if line.endswith(f"--plot {plot}"))
    arguments = command.split()[1:-2]
    done = subprocess.run(
        [sys.executable, "-m", "uncork", *arguments, "--json", "-"], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def lines(axes: Axes, found: dict[str, Any], across: str, up: str) -> None:
    """Draw a line for each policy, and a dashed one for the policy to which they are compared."""
    for policy in found["policies"]:
        colour, mark = LOOKS[policy]
        axes.plot(
            [cell[across] for cell in found["cells"]],
            [cell["policies"][policy]["average"][up] for cell in found["cells"]],
            label=policy,
            color=colour,
            marker=mark,
            linestyle=(0, (4, 2)) if policy == found["base"] else "-",
            **line_look(first=policy == "cork"),
        )


def finish(figure: Figure, axes: Axes, title: str, name: str) -> None:
    headline(figure, title)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(FOLDER / name, metadata={"Date": None})


def draw_open() -> None:
    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    found = simulated("open.html")
    panels = figure.subplots(1, 2)
    figures = {"mean latency": "mean_ms", "99th percentile": "p99_ms"}
    for axes, (title, name) in zip(panels, figures.items(), strict=True):
        axes.set_title(title)
        axes.set_xlabel("load, as a share of the capacity in full batches")
        axes.set_ylabel("milliseconds")
        lines(axes, found, "load", name)
        log_upwards(axes)
        axes.set_xlim(left=0)
    finish(figure, panels[0], "5 + 0.1n ms, 4 workers, poisson arrivals, noise 0.1", "open.svg")


def draw_closed() -> None:
    figure = Figure(figsize=(6.6, 4.4), layout="constrained")
    found = simulated("closed.html")
    axes = figure.subplots()
    axes.set_xlabel("clients of a closed loop")
    axes.set_ylabel("rows per second")
    lines(axes, found, "clients", "rows_per_s")
    log_across(axes, [cell["clients"] for cell in found["cells"]])
    axes.set_ylim(bottom=0)
    finish(figure, axes, "5 + 0.1n ms, 1 worker, round trip 0.5 ms, noise 0.1", "closed.svg")


def draw_cold() -> None:
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    found = cold_starts(cold_cells(quick=True), range(101, 111), processes=2, tell=lambda done, of: None)
    panels = figure.subplots(1, len(found), sharey=True)
    for axes, one in zip(panels, found, strict=True):
        axes.set_title(TRUTHS[one.cell.padding])
        axes.set_xlabel("second since the first request")
        for policy, answers in (("cork", one.cork), ("one by one", one.one_by_one)):
            colour, mark = LOOKS["cork" if policy == "cork" else "fixed:0"]
            axes.plot(
                range(1, SECONDS + 1),
                answers,
                label=policy,
                color=colour,
                marker=mark,
                **line_look(first=policy == "cork"),
            )
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("answers per second")
    finish(figure, panels[0], "A fresh gateway: 4 + 0.02 * size ms, 1 worker, 64 clients", "cold.svg")


if __name__ == "__main__":
    with rc_context(STYLE | {"svg.hashsalt": "uncork"}):
        draw_open()
        draw_closed()
        draw_cold()
