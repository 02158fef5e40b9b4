"""Tables of what a comparison with the peers found."""

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from uncork_loadtests.generators import Trial
from uncork_loadtests.peers.contest import Point
from uncork_loadtests.peers.entrants import OURS
from uncork_loadtests.peers.judge import metric_of, values

_COLUMNS = ("req/s", "of limit", "p50 ms", "p99 ms", "front cpu", "all cpu", "refused", "faults")
_CAPTION = (
    "medians over the rounds; cpu in processor seconds per 1000 requests; refused, faults in all rounds"
)


def show(point: Point, *, console: Console) -> None:
    """Print the medians over the rounds, best entrant first, and the ratio with its interval."""
    limit = f", limit {point.limit:,.0f}/s" if point.limit else ""
    title = f"{point.work}, 1 worker, {point.connections} closed-loop clients{limit}"
    table = Table(title=title, title_justify="left", caption=_CAPTION, caption_justify="left")
    table.add_column("server", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    metric = metric_of(point.connections)
    medians = {name: _median(values(found, metric=metric)) for name, found in point.trials.items()}
    sign = 1 if metric == "p50" else -1
    # Without a value last, whichever way the metric points.
    order = sorted(medians, key=lambda name: (medians[name] is None, sign * (medians[name] or 0.0)))
    for name in order:
        cells = _cells(point.trials[name], all_cpu=point.all_cpu[name], limit=point.limit)
        table.add_row(name, *cells, style="bold" if name == OURS else None)
    console.print(table)
    console.print(ratio_line(point), markup=False)
    console.print()


def ratio_line(point: Point) -> str:
    """Say in one line how Uncork stands to the best of the others."""
    ratio = point.ratio
    if ratio is None:
        return "no ratio: a figure is missing, or nobody is there to compare with"
    what, better = ("p50", "below") if ratio.metric == "p50" else ("requests/s", "above")
    return (
        f"{what}, {OURS} / {ratio.best}: {ratio.median:.3f} "
        f"(95 % interval {ratio.low:.3f} .. {ratio.high:.3f}); {better} 1 is better for {OURS}"
    )


def _cells(trials: Sequence[Trial], *, all_cpu: Sequence[float | None], limit: float | None) -> list[str]:
    seen = [trial.seen for trial in trials]
    rate = _median([each.requests_per_second for each in seen])
    return [
        _text(rate, digits=0),
        f"{rate / limit:.1%}" if rate is not None and limit else "-",
        _text(_median([each.p50 for each in seen]), digits=2, scale=1000),
        _text(_median([each.p99 for each in seen]), digits=2, scale=1000),
        _text(_median([trial.server_cpu for trial in trials]), digits=3),
        _text(_median(all_cpu), digits=3),
        str(sum(each.refused for each in seen)),
        str(sum(bool(each.fault) for each in seen)),
    ]


def _median(found: Sequence[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return statistics.median(known) if known else None


def _text(value: float | None, *, digits: int, scale: float = 1.0) -> str:
    return "-" if value is None else f"{value * scale:,.{digits}f}"
