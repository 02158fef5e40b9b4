"""Results of ``uncork compare``, as tables, as JSON and as a page with a plot."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from uncork.cli.loadtest.tables import milliseconds, plan_figures, traffic
from uncork.cli.terminal import NOTHING, as_document, plain_table
from uncork_dispatcher.wording import plural
from uncork_loadtests.compare import Comparison, Interval
from uncork_loadtests.reports.page import Panel, Series, looks, write_page

_LENGTHS = ("long_mean_ms", "long_p99_ms", "padding_share")
_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "mean_ms": ("mean ms", milliseconds),
    "p50_ms": ("p50 ms", milliseconds),
    "p99_ms": ("p99 ms", milliseconds),
    "long_mean_ms": ("long mean ms", milliseconds),
    "long_p99_ms": ("long p99 ms", milliseconds),
    "answered_per_s": ("answered/s", lambda value: f"{value:.1f}"),
    "in_goal": ("in goal %", lambda value: f"{100 * value:.2f}"),
    "batch_rows": ("rows/batch", lambda value: f"{value:.1f}"),
    "padding_share": ("padding %", lambda value: f"{100 * value:.1f}"),
    "gateway_cpu_us": ("gateway us", lambda value: f"{value:.0f}"),
    "workers_cpu_us": ("workers us", lambda value: f"{value:.0f}"),
}


def tables(comparison: Comparison) -> Iterator[RenderableType]:
    yield heading(comparison)
    yield ""
    yield _medians(comparison)
    yield f"left out: a first load of {comparison.plan.seconds:g} s on each policy, to learn and to warm up"
    yield "medians over the rounds; gateway us, workers us: CPU time per request in microseconds"
    shown = _columns(comparison)
    if "long_mean_ms" in shown:
        yield "long: requests with the longest tenth of the bodies"
    if "padding_share" in shown:
        yield "padding: share of the work of the last 20 batches or so, as the gateway estimates it"
    yield ""
    yield _ratios(comparison)
    yield f"ratios to {comparison.results[0].policy}, round by round: median and 95 % interval"


def heading(comparison: Comparison) -> str:
    """Return service, traffic and rounds in a line."""
    plan, rounds = comparison.plan, comparison.rounds
    count = len(rounds.whole)
    parts = [comparison.target, traffic(plan), f"{plural(count, 'round')} of {plan.seconds:g} s"]
    if plan.goal_s is not None:
        parts.append(f"goal {plan.goal_s * 1000:g} ms")
    return ", ".join(parts)


def interval_text(interval: Interval | None) -> str:
    """Format a median with its interval, if it has one."""
    return NOTHING if interval is None else str(interval)


def as_json(comparison: Comparison) -> bytes:
    plan = plan_figures(comparison.plan)
    del plan["url"]  # each server had its own
    figures = {
        "service": comparison.target,
        "plan": plan,
        "warm_up_s": comparison.plan.seconds,
        "base": comparison.results[0].policy if comparison.results else None,
        "results": comparison.results,
        "rounds": comparison.rounds,
        "faults": comparison.faults,
    }
    return as_document(figures)


def _columns(comparison: Comparison) -> list[str]:
    """Return the figures to show: those of lengths only if some policy has them."""
    return [
        name
        for name in _COLUMNS
        if name not in _LENGTHS or any(one.medians[name] is not None for one in comparison.results)
    ]


def _medians(comparison: Comparison) -> Table:
    columns = [(name, *_COLUMNS[name]) for name in _columns(comparison)]
    table = plain_table("policy", *(title for _, title, _ in columns))
    for result in comparison.results:
        values = [(result.medians[name], text) for name, _, text in columns]
        table.add_row(result.policy, *(NOTHING if value is None else text(value) for value, text in values))
    return table


def _ratios(comparison: Comparison) -> Table:
    columns = _columns(comparison)
    table = plain_table(
        "ratio", *(_COLUMNS[name][0].removesuffix(" ms").removesuffix(" %") for name in columns)
    )
    for result in comparison.results[1:]:
        table.add_row(result.policy, *(interval_text(result.ratios[name]) for name in columns))
    return table


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
