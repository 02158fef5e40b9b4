"""Tables of the comparison with the peers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.harness.marks import Bound
from benchmarks.harness.report import OURS
from benchmarks.harness.rounds import SOON_S, Round
from benchmarks.harness.sheets import Sheet, interval_text, median_known, text
from benchmarks.peers.contest import Contest, Point
from benchmarks.peers.loads import OpenLoop
from benchmarks.peers.marks import LIMIT, Figure, Mark, Verdict, less_is_better, values, verdict

FIGURES: Mapping[Figure, str] = {
    "requests_per_second": "requests/s",
    "p50": "p50",
    "p99": "p99",
    "in_goal": "share within the goal",
    "soon": f"share within {SOON_S * 1000:g} ms",
    "front_cpu": "front cpu",
}
"""Names of figures."""
_SCALES: dict[Figure, float] = {"requests_per_second": 1, "p99": 1000}


class _Column(NamedTuple):
    title: str
    figure: Callable[[Round], float | None]
    digits: int
    scale: float = 1.0


_LATENCIES = (
    _Column("p50 ms", lambda each: each.p50, 2, 1000),
    _Column("p99 ms", lambda each: each.p99, 2, 1000),
)
_COSTS = (
    _Column("front cpu", lambda each: each.front_cpu, 3),
    _Column("all cpu", lambda each: each.all_cpu, 3),
)
_SHARES = (
    _Column("in goal %", lambda each: each.in_goal, 2, 100),
    _Column(f"in {SOON_S * 1000:g} ms %", lambda each: each.soon, 2, 100),
)
_RATE = _Column("req/s", lambda each: each.requests_per_second, 0)


def point_sheet(point: Point) -> Sheet:
    """Tabulate the medians over the rounds, best entrant first, with the verdicts."""
    columns = [_RATE, *_LATENCIES, *_COSTS]
    if isinstance(point.load, OpenLoop):
        columns[1:1] = _SHARES
    elif point.limit:
        limit = point.limit
        columns[1:1] = [_Column("of limit %", lambda each: each.requests_per_second / limit, 1, 100)]
    rows = [
        [name, *_cells(point.rounds[name], columns), *_counts(point.rounds[name])]
        for name in _order(point, figure=point.load.figure)
    ]
    return Sheet(
        title=f"{point.work}, 1 worker, {point.load.title}{_bounds(point)}",
        columns=["server", *(column.title for column in columns), "refused", "faults", "rounds"],
        rows=rows,
        notes=[verdict_line(each) for each in point.verdicts],
        emphasised=OURS,
    )


def marks_sheet(results: Sequence[Contest]) -> Sheet:
    """Tabulate the marks of all models and loads."""
    rows = [
        [
            point.work,
            point.load.title,
            f"{FIGURES[each.mark.figure]} / {each.rival}",
            interval_text(each.ratio),
            str(each.rounds),
            _bound_text(each.mark.bound),
            each.state,
        ]
        for result in results
        for point in result.points
        for each in point.verdicts
        if each.state != "no mark"
    ]
    states = [row[-1] for row in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
    return Sheet(
        title="Marks",
        columns=[
            "model",
            "load",
            f"figure, {OURS} / peer",
            "ratio (95 % interval)",
            "rounds",
            "mark",
            "state",
        ],
        rows=rows,
        notes=[counts or "no marks for these models and loads", *LEGEND],
    )


def beside_sheet(results: Sequence[Contest], *, figure: Figure) -> Sheet:
    """Tabulate the ratio of our figure to each peer's best, by model and load."""
    found: dict[tuple[str, str], dict[str, Point]] = {}
    for point in (point for result in results for point in result.points):
        # The name of an entrant consists of its peer and its setting.
        for peer in {name.split()[0] for name in point.rounds if name != OURS}:
            found.setdefault((point.work, point.load.title), {})[peer] = point
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
    mark = Mark(figure, peer)
    ratio = verdict(mark, point.rounds, ours=OURS, limit=None).ratio
    return f"{ratio.median:.2f} ({ratio.low:.2f} .. {ratio.high:.2f})" if ratio else "-"


LEGEND = (
    "Medians over the rounds; cpu in processor seconds per 1000 requests, of the process that speaks HTTP "
    "(front) and of all; refused and faults in all rounds.",
    "Ratios are taken round by round; within the noise: the 95 % interval of their median (bootstrap over "
    "the rounds) contains the mark. The best peer is the one with the best median at the same point.",
)


def verdict_line(verdict: Verdict) -> str:
    """Write a verdict in one line."""
    mark = verdict.mark
    what = f"{FIGURES[mark.figure]}, {OURS} / {verdict.rival}"
    if verdict.ratio is None:
        return f"{what}: not measured, or no peer was; mark: {_bound_text(mark.bound)}"
    better = "below" if less_is_better(mark.figure) else "above"
    after = f"{better} 1 is better for {OURS}" if verdict.rival != LIMIT else "1 is the limit"
    if verdict.state != "no mark":
        after = f"mark: {mark.bound}, {verdict.state}"
    return f"{what}: {interval_text(verdict.ratio)}; {after}"


def _bound_text(bound: Bound | None) -> str:
    return str(bound) if bound else "-"


def _bounds(point: Point) -> str:
    limit = f", limit {point.limit:,.0f}/s" if point.limit else ""
    return limit + (f", goal {point.load.goal_s * 1000:g} ms" if isinstance(point.load, OpenLoop) else "")


def _order(point: Point, *, figure: Figure) -> list[str]:
    """Return the entrants, best first, those without a figure last."""
    medians = {name: median_known(values(found, figure=figure)) for name, found in point.rounds.items()}
    sign = 1 if less_is_better(figure) else -1
    return sorted(medians, key=lambda name: (medians[name] is None, sign * (medians[name] or 0.0)))


def _cells(rounds: Sequence[Round | None], columns: Sequence[_Column]) -> list[str]:
    known = [each for each in rounds if each is not None]
    return [
        text(median_known(map(column.figure, known)), digits=column.digits, scale=column.scale)
        for column in columns
    ]


def _counts(rounds: Sequence[Round | None]) -> list[str]:
    known = [each for each in rounds if each is not None]
    refused, faults = sum(each.refused for each in known), sum(bool(each.fault) for each in known)
    whole = len(known) == len(rounds)
    return [str(refused), str(faults), str(len(known)) if whole else f"{len(known)} of {len(rounds)}"]
