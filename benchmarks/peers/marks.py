"""The ratios to its peers that Uncork should reach, and whether it does."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from benchmarks.harness.marks import Bound, State, Values, at_least, at_most, ratios
from benchmarks.harness.rounds import Round
from benchmarks.peers.catalogue import ModelPoint
from uncork_loadtests.compare import Interval, median_interval

BEST = "the best peer"
LIMIT = "the limit"
COMPILED = "uncork-compiled"
"""The entrant with the compiled core; it is compared, but no peer."""
Figure = Literal["requests_per_second", "p50", "p99", "in_goal", "soon", "front_cpu"]
"""A field of Round that entrants are compared by."""
_LESS_IS_BETTER = ("p50", "p99", "front_cpu")


@dataclass(frozen=True)
class Mark:
    """A figure of Uncork, its divisor, and the bound of the ratio."""

    figure: Figure
    rival: str
    """BEST, LIMIT, COMPILED, or a peer, in its best setting."""
    bound: Bound | None = None
    """None: the ratio is only reported."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A mark and its result."""

    mark: Mark
    rival: str
    """The entrant that was the divisor; as in the mark if there was none."""
    ratio: Interval | None
    rounds: int
    """Rounds in which both have a figure."""
    state: State


_LIGHT = ModelPoint(intercept_ms=1, slope_ms=0.02)
_MIDDLE = ModelPoint(intercept_ms=5, slope_ms=0.1)
_HEAVY = ModelPoint(intercept_ms=40, slope_ms=1)
_THRIFT = Mark("front_cpu", "mosec", at_most(1.0))
_FULL = Mark("requests_per_second", LIMIT, at_least(0.88))
_LONE = Mark("p50", "unbatched", at_most(1.05))
_CLOSED: Mapping[tuple[ModelPoint, int], Sequence[Mark]] = {
    (_LIGHT, 1): [Mark("p50", "unbatched", at_most(1.1))],
    (_LIGHT, 16): [Mark("requests_per_second", BEST, at_least(1.1))],
    (_LIGHT, 64): [Mark("requests_per_second", BEST, at_least(1.2))],
    (_LIGHT, 256): [Mark("requests_per_second", BEST, at_least(1.4)), _THRIFT],
    **{(model, 1): [_LONE] for model in (_MIDDLE, _HEAVY)},
    **{(model, clients): [_FULL] for model in (_MIDDLE, _HEAVY) for clients in (16, 64)},
    **{(model, 256): [_FULL, _THRIFT] for model in (_MIDDLE, _HEAVY)},
}
_PROMPT = [Mark("p99", BEST, at_most(1.0)), Mark("in_goal", BEST, at_least(1.0))]
_PROMPT += [Mark("soon", BEST, at_least(1.0))]
_OPEN: Mapping[ModelPoint, Sequence[Mark]] = {
    _LIGHT: [Mark("p50", BEST, at_most(0.9)), Mark("p99", BEST, at_most(0.9))],
    _MIDDLE: _PROMPT,
    _HEAVY: _PROMPT,
}


def closed_marks(model: ModelPoint | None, *, clients: int, compiled: bool = False) -> list[Mark]:
    """Return the marks of a closed loop; a ratio to the best peer is always among them."""
    found = list(_CLOSED.get((model, clients), ())) if model else []
    return _with_ratios(found, ["p50" if clients == 1 else "requests_per_second"], compiled=compiled)


def open_marks(model: ModelPoint, *, compiled: bool = False) -> list[Mark]:
    """Return the marks of an open loop; ratios of p50 and p99 to the best peer are always among them."""
    return _with_ratios(list(_OPEN.get(model, ())), ["p50", "p99"], compiled=compiled)


def _with_ratios(marks: list[Mark], figures: Sequence[Figure], *, compiled: bool) -> list[Mark]:
    present = {mark.figure for mark in marks if mark.rival == BEST}
    found = marks + [Mark(figure, BEST) for figure in figures if figure not in present]
    return found + [Mark(figure, COMPILED) for figure in figures if compiled]


def verdict(
    mark: Mark, rounds: Mapping[str, Sequence[Round | None]], *, ours: str, limit: float | None
) -> Verdict:
    """Judge the rounds of one point, by entrant."""
    rival: str | None = LIMIT if limit else None
    if mark.rival != LIMIT:
        rival = best(rounds, figure=mark.figure, among=_rivals(mark, rounds, ours=ours))
    found: list[float] = []
    if rival is not None and ours in rounds:
        mine = values(rounds[ours], figure=mark.figure)
        by = [limit] * len(mine) if rival == LIMIT else values(rounds[rival], figure=mark.figure)
        found = ratios(mine, by=by)
    interval = median_interval(found) if found else None
    return Verdict(
        mark=mark,
        rival=rival or mark.rival,
        ratio=interval,
        rounds=len(found),
        state=mark.bound.state(found) if mark.bound else "no mark",
    )


def _rivals(mark: Mark, rounds: Mapping[str, Sequence[Round | None]], *, ours: str) -> list[str]:
    others = [name for name in rounds if name != ours]
    if mark.rival == BEST:
        return [name for name in others if name != COMPILED]
    # The name of an entrant consists of its peer and its setting.
    return [name for name in others if name.split()[0] == mark.rival]


def less_is_better(figure: Figure) -> bool:
    return figure in _LESS_IS_BETTER


def values(rounds: Sequence[Round | None], *, figure: Figure) -> Values:
    """Return the figure in every round; None for a void round."""
    return [None if each is None else getattr(each, figure) for each in rounds]


def best(rounds: Mapping[str, Sequence[Round | None]], *, figure: Figure, among: Iterable[str]) -> str | None:
    """Return the entrant with the best median of these rounds, which can only favour it.

    Entrants with a figure in less than half of the rounds do not count; None if none is left.
    """
    medians = {}
    for name in among:
        known = [value for value in values(rounds[name], figure=figure) if value is not None]
        if known and 2 * len(known) >= len(rounds[name]):
            medians[name] = median(known)
    pick = min if less_is_better(figure) else max
    return pick(medians, key=lambda name: medians[name]) if medians else None
