"""Draw the simulations of the explanations again: ``python docs/pictures/simulations.py``.

It runs the commands that a page shows, which take some minutes, and writes open.svg and closed.svg. From some
cells of ``scripts/bench padding --cold``, it writes cold.svg, and from simulations of its own classes.svg.
"""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from style import STYLE, headline, line_look, log_across, log_upwards

from benchmarks.padding.cells import in_processes
from benchmarks.padding.cold import SECONDS, answers, cold_cells
from benchmarks.padding.tables import TRUTHS
from uncork_dispatcher.simulator import Clients, Scenario, ServiceTime, open_loop, simulate
from uncork_dispatcher.simulator.lengths import Known
from uncork_loadtests.reports.page import BLUE, DARK_GREY, GREEN, PURPLE, SKY_BLUE, VERMILION

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent.parent / "benchmarks/results/dispatcher.md"
CLASS_LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
CLASS_GOAL_MS = 100.0
COLD: tuple[tuple[str, str, Known], ...] = (
    ("cork", "cork", "costs"),
    ("fixed:0", "release when free, in order of arrival", "totals"),
    ("none", "one by one", "costs"),
)
LOOKS = {
    "cork": (VERMILION, "o"),
    "fixed:0": (DARK_GREY, "s"),
    "cork-classic": (BLUE, "^"),
    "none": (BLUE, "^"),
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
    cells = cold_cells(quick=True)
    panels = figure.subplots(1, len(cells), sharey=True)
    for policy, label, known in COLD:
        run = partial(answers, policy=policy, seeds=range(101, 111))
        run_in = [replace(cell, known=known) for cell in cells]
        found = in_processes(run, run_in, processes=2, tell=lambda done, of: None)
        colour, mark = LOOKS[policy]
        for axes, cell, per_s in zip(panels, cells, found, strict=True):
            axes.set_title(TRUTHS[cell.padding])
            axes.set_xlabel("second since the first request")
            axes.plot(
                range(1, SECONDS + 1),
                per_s,
                label=label,
                color=colour,
                marker=mark,
                **line_look(first=policy == "cork"),
            )
    for axes in panels:
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("answers per second")
    title = "A fresh gateway, simulated: 4 + 0.02 * size ms, 1 worker, 64 clients"
    finish(figure, panels[0], title, "cold.svg")


def draw_classes() -> None:
    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    latency, bulk = figure.subplots(1, 2)
    latency.set_title("interactive requests")
    latency.set_ylabel("milliseconds")
    bulk.set_title("bulk")
    bulk.set_ylabel("rows per second")
    for label, has_classes in (("two classes", True), ("one queue", False)):
        colour, mark = LOOKS["cork" if has_classes else "fixed:0"]
        look = {"color": colour, "marker": mark, **line_look(first=has_classes)}
        found = [interactive_and_bulk(load, has_classes=has_classes) for load in CLASS_LOADS]
        p50, p99, rows = zip(*found, strict=True)
        latency.plot(CLASS_LOADS, p99, label=f"{label}, p99", **look)
        latency.plot(CLASS_LOADS, p50, label=f"{label}, p50", **look | {"linestyle": (0, (4, 2))})
        bulk.plot(CLASS_LOADS, rows, **look)
    latency.axhline(CLASS_GOAL_MS, color=DARK_GREY, linewidth=1)
    latency.annotate("goal", (CLASS_LOADS[0], CLASS_GOAL_MS), xytext=(0, 3), textcoords="offset points")
    for axes in (latency, bulk):
        axes.set_xlabel("interactive load, as a share of the capacity")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    title = "20 + 0.2n ms, 1 worker, poisson arrivals and 64 clients of bulk with 8 rows each"
    finish(figure, latency, title, "classes.svg")


def interactive_and_bulk(load: float, *, has_classes: bool) -> tuple[float, float, float]:
    """Return p50 and p99 of the latency of interactive requests in ms, and the rows per second of bulk.

    With one queue, the goal is so long that no request is refused.
    """
    service, clients = ServiceTime(intercept_s=0.02, slope_s=0.0002, noise_cv=0.1), Clients(count=64)
    rate = load * service.capacity(workers=1, limit_rows=256)
    arrivals = open_loop("poisson", rate=rate, count=round(20 * rate), random_=Random(1))
    run = simulate(
        Scenario(
            service=service,
            arrivals=arrivals,
            limit_rows=256,
            goal_s=CLASS_GOAL_MS / 1000 if has_classes else 60.0,
            bulk=clients,
            bulk_rows=8.0,
            bulk_goal_s=inf if has_classes else None,
        )
    )
    begin, end = arrivals[len(arrivals) // 10], arrivals[-1]
    measured = [one for one in run.answered if begin <= one.finish <= end]
    latencies = sorted([1000 * (one.finish - one.arrival) for one in measured if not one.bulk])
    p50, p99 = (latencies[int(share * len(latencies))] for share in (0.5, 0.99))
    return p50, p99, sum([one.length for one in measured if one.bulk]) / (end - begin)


if __name__ == "__main__":
    with rc_context(STYLE | {"svg.hashsalt": "uncork"}):
        draw_open()
        draw_closed()
        draw_cold()
        draw_classes()
