"""Trends of a gateway's resources and latency: slopes within runs, with an interval over the runs."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import nan, sqrt
from pathlib import Path
from statistics import linear_regression, mean, median, stdev

from scipy.special import stdtrit  # type: ignore[import-untyped]

from benchmarks.harness.sheets import Sheet

Points = list[tuple[float, float]]
"""Seconds since the start of the load, and the value."""
Series = Mapping[str, Points]
"""The points of a run, by what was measured."""

_EVERY_S = 10.0
# Caches fill and estimates settle in the first part of a run.
SETTLED_AFTER = 0.2


def thinned(points: Iterable[tuple[float, float]]) -> Points:
    """Return the median of each ten seconds."""
    values: defaultdict[float, list[float]] = defaultdict(list)
    for at_s, value in points:
        values[at_s // _EVERY_S * _EVERY_S].append(value)
    return [(at_s, median(found)) for at_s, found in sorted(values.items())]


def append(series: Series, file: Path) -> list[Series]:
    """Add a run to a file of JSON lines; return all of its runs."""
    with file.open("a") as lines:
        lines.write(json.dumps(series) + "\n")
    return [json.loads(line) for line in file.read_text().splitlines()]


def sheet(runs: Sequence[Series]) -> Sheet:
    """Tabulate the slope of each quantity in percent of its median per hour."""
    hours = sum(max(at_s for at_s, _ in run["memory, MB"]) for run in runs) / 3600
    return Sheet(
        title=f"Trends over {len(runs)} runs, {hours:.1f} hours in all",
        columns=("quantity", "median", "% per hour", "95 % interval", "of each run"),
        rows=[_row(name, [run[name] for run in runs]) for name in runs[0]],
    )


def _row(name: str, runs: Sequence[Points]) -> list[str]:
    slopes = [_percent_per_hour(points) for points in runs]
    level = median(value for points in runs for _, value in points)
    interval = "-"
    if len(slopes) > 1:
        half = stdev(slopes) / sqrt(len(slopes)) * float(stdtrit(len(slopes) - 1, 0.975))
        low, high = mean(slopes) - half, mean(slopes) + half
        interval = f"{low:+.1f} .. {high:+.1f}"
    each = ", ".join(f"{slope:+.1f}" for slope in slopes)
    return [name, f"{level:.1f}", f"{mean(slopes):+.1f}", interval, each]


def _percent_per_hour(points: Points) -> float:
    """Fit a line by least squares to what follows the first part of a run."""
    settled = [point for point in points if point[0] >= SETTLED_AFTER * points[-1][0]]
    if len(settled) < 2:
        return nan
    times, values = zip(*settled, strict=True)
    slope = linear_regression(times, values).slope
    return float(100 * 3600 * slope / median(values))
