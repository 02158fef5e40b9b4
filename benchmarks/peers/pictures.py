"""Pictures of the comparison with the peers, drawn with matplotlib.

This draws several runs as one, from files of ``scripts/bench peers --json``:

    python -m benchmarks.peers.pictures docs/pictures light.json heavy.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.pictures import STYLE, headline, line_look, log_across, log_upwards
from benchmarks.harness.report import OURS
from benchmarks.harness.sheets import median_known
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.contest import Point, WorkResult
from benchmarks.peers.marks import Figure, best, values
from benchmarks.peers.report import read_results
from uncork_loadtests.reports.page import BLUE, DARK_GREY, GREEN, ORANGE, PURPLE, SKY_BLUE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

# More names do not fit below a picture.
_LEGEND_COLUMNS = 5
_COLOURS = (DARK_GREY, BLUE, SKY_BLUE, GREEN, PURPLE, ORANGE, "#999933", "#882255", "#332288")
_MARKS = "s^vDPX<>h"
_LOOKS = {OURS: (VERMILION, "o")} | {
    name: (colour, mark) for name, colour, mark in zip(PEERS, _COLOURS, _MARKS, strict=True)
}
"""Colour and marker, the same in every picture; Okabe and Ito's palette, extended."""


def main() -> None:
    """Draw the files named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the pictures")
    parser.add_argument("files", nargs="+", type=Path, help="files of scripts/bench peers --json")
    options = parser.parse_args()
    draw(by_model(read_results(options.files)), folder=options.folder)


def by_model(results: Sequence[WorkResult]) -> list[WorkResult]:
    """Join the points of each model."""
    joined: dict[str, WorkResult] = {}
    for result in results:
        before = joined.get(result.work)
        joined[result.work] = (
            result if before is None else replace(before, points=[*before.points, *result.points])
        )
    return list(joined.values())


def draw(results: Sequence[WorkResult], *, folder: Path) -> list[Path]:
    """Draw one picture per kind of load; raise OSError if one cannot be written."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    closed = [[point for point in each.points if point.connections] for each in results]
    opened = [[point for point in each.points if point.rate] for each in results]
    made = []
    with rc_context(STYLE):
        for name, works, picture in (("closed", closed, _throughput), ("open", opened, _p99)):
            measured = [points for points in works if points]
            if measured:
                made.append(folder / f"peers-{name}.svg")
                picture(measured).savefig(made[-1])
    return made


def draw_curve(
    points: Sequence[tuple[float, float]], *, path: Path, title: str, labels: tuple[str, str]
) -> None:
    """Draw one line over a logarithmic axis; raise OSError if it cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Picture

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        picture = Picture(figsize=(6.6, 4.0), layout="constrained")
        axes = picture.subplots()
        _draw_line(axes, OURS, points)
        log_across(axes, [x for x, _ in points])
        axes.set_ylim(bottom=0)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        headline(picture, title, size=10)
        picture.savefig(path)


def _throughput(works: Sequence[Sequence[Point]]) -> Picture:
    def share(point: Point, value: float) -> float:
        return value / point.limit if point.limit else value

    picture, panels = _panels(
        works, "closed loop, one worker: answers per second", "requests_per_second", share
    )
    for axes, points in zip(panels, works, strict=True):
        axes.set_xlabel("clients, each of which waits for its answer")
        log_across(axes, [point.connections or 1 for point in points])
        axes.set_ylim(bottom=0)
        axes.set_ylabel("share of what the model allows" if points[0].limit else "requests per second")
    return picture


def _p99(works: Sequence[Sequence[Point]]) -> Picture:
    picture, panels = _panels(
        works, "open loop (Poisson), one worker: 99th percentile", "p99", lambda point, value: value * 1000
    )
    for axes in panels:
        axes.set_xlabel("requests per second")
        axes.set_ylabel("milliseconds")
        axes.set_xlim(left=0)
        log_upwards(axes)
    return picture


def _panels(
    works: Sequence[Sequence[Point]], title: str, figure: Figure, scaled: Callable[[Point, float], float]
) -> tuple[Picture, list[Axes]]:
    """Draw a panel per model, with a line per server in its best setting at each point."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(max(6.6, 3.6 * len(works) + 0.4), 4.2), layout="constrained")
    panels: list[Axes] = picture.subplots(1, len(works), squeeze=False).flatten().tolist()
    legend: dict[str, Any] = {}
    for axes, points in zip(panels, works, strict=True):
        axes.set_title(points[0].work)
        for name in _LOOKS:
            line = _line(points, name, figure=figure, scaled=scaled)
            if line:
                legend.setdefault(name, _draw_line(axes, name, line))
    headline(picture, title)
    picture.legend(
        legend.values(), legend.keys(), loc="outside lower center", ncols=min(len(legend), _LEGEND_COLUMNS)
    )
    return picture, panels


def _line(
    points: Sequence[Point], name: str, *, figure: Figure, scaled: Callable[[Point, float], float]
) -> list[tuple[float, float]]:
    found = []
    for point in points:
        entrant = best(point.rounds, figure=figure, among=_settings(point, name))
        value = median_known(values(point.rounds[entrant], figure=figure)) if entrant else None
        if value is not None:
            found.append((point.connections or point.rate or 0.0, scaled(point, value)))
    return sorted(found)


def _settings(point: Point, name: str) -> list[str]:
    return [entrant for entrant in point.rounds if entrant.split()[0] == name]


def _draw_line(axes: Axes, name: str, line: Sequence[tuple[float, float]]) -> Any:
    colour, mark = _LOOKS[name]
    (drawn,) = axes.plot(
        [x for x, _ in line],
        [y for _, y in line],
        color=colour,
        marker=mark,
        **line_look(first=name == OURS),
    )
    return drawn


if __name__ == "__main__":
    main()
