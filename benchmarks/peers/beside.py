"""Uncork compared with each peer, from runs with the servers of these two only."""

from collections.abc import Sequence

from benchmarks.harness.report import OURS
from benchmarks.harness.sheets import Sheet, median_known, text
from benchmarks.peers.contest import Point, WorkResult
from benchmarks.peers.marks import Figure, Mark, less_is_better, values, verdict
from benchmarks.peers.tables import FIGURES

_SCALES: dict[Figure, float] = {"requests_per_second": 1, "p99": 1000}


def beside_sheet(results: Sequence[WorkResult], *, figure: Figure) -> Sheet:
    """Tabulate our figure divided by that of each peer in its best setting, by model and load."""
    found: dict[tuple[str, str], dict[str, Point]] = {}
    for point in (point for result in results for point in result.points):
        # An entrant's name is that of its peer and its setting.
        for peer in {name.split()[0] for name in point.rounds if name != OURS}:
            found.setdefault((point.work, point.load), {})[peer] = point
    peers = list(dict.fromkeys(peer for points in found.values() for peer in points))
    unit = " ms" if _SCALES[figure] == 1000 else ""
    return Sheet(
        title=f"{FIGURES[figure].capitalize()}: {OURS} / each peer",
        columns=["model", "load", f"{OURS}{unit}", *peers],
        rows=[
            [work, load, _ours(points, figure), *(_ratio(points.get(peer), peer, figure) for peer in peers)]
            for (work, load), points in found.items()
        ],
        notes=[
            f"Ratios round by round, with the 95 % interval of their median; "
            f"{'below' if less_is_better(figure) else 'above'} 1 is better for {OURS}.",
            f"Each peer has its best setting for the load. {OURS} has its defaults; its figure is the "
            "median over the runs with all peers.",
        ],
    )


def _ours(points: dict[str, Point], figure: Figure) -> str:
    known = [value for point in points.values() for value in values(point.rounds[OURS], figure=figure)]
    return text(
        median_known(known), digits=0 if figure == "requests_per_second" else 1, scale=_SCALES[figure]
    )


def _ratio(point: Point | None, peer: str, figure: Figure) -> str:
    if point is None:
        return "-"
    mark = Mark(figure=figure, rival=peer, bound=None)
    ratio = verdict(mark, point.rounds, ours=OURS, limit=None).ratio
    return f"{ratio.median:.2f} ({ratio.low:.2f} .. {ratio.high:.2f})" if ratio else "-"
