"""The plot of a comparison of policies."""

from pathlib import Path

from uncork.cli.compare.tables import heading, interval_text
from uncork_loadtests.compare import Comparison
from uncork_loadtests.reports.page import Panel, Series, looks, write_page

_PANELS = {
    "p50_ms": "Median latency in milliseconds",
    "p99_ms": "99th percentile in milliseconds",
    "answered_per_s": "Successful responses per second",
    "in_goal": "Share within the goal",
}


def draw(comparison: Comparison, path: Path) -> None:
    """Draw every round as a stroke and the median as a mark; raise OSError if that fails.

    Each policy but the first has its ratio to the first and the 95 % interval below its name.
    """
    panels = [_panel(comparison, name, title) for name, title in _PANELS.items()]
    write_page(path, title=heading(comparison), panels=panels)


def _panel(comparison: Comparison, name: str, title: str) -> Panel:
    of = looks(result.policy for result in comparison.results)
    rows, series = [], []
    for place, result in enumerate(comparison.results):
        colour, symbol = of[result.policy]
        rounds = [getattr(one[result.policy], name) for one in comparison.rounds.whole]
        known = [value for value in rounds if value is not None]
        series.append(Series("points", known, [place] * len(known), colour, size=14, symbol="line-ns-open"))
        median = result.medians[name]
        if median is None:
            says = "too few responses"
        else:
            series.append(Series("points", [median], [place], colour, size=11, symbol=symbol))
            says = interval_text(result.ratios[name]) if place else ""
        rows.append(f"{result.policy}<br>{says}" if says else result.policy)
    return Panel(title=title, rows=rows, series=series)
