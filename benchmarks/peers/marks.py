"""What Uncork is meant to reach beside its peers, and whether it does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.peers.judge import Figure, best, ratios, values
from benchmarks.peers.loads import Round
from benchmarks.peers.model_point import ModelPoint
from uncork_loadtests.intervals import Interval, median_interval

BEST = "the best peer"
LIMIT = "the limit"
State = Literal["met", "missed", "within the noise", "too few rounds", "no mark"]
# With fewer, the median lies outside of all that was seen too often to judge by them.
_LEAST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What a ratio must not pass."""

    value: float
    upper: bool
    """Whether it must not be above it; else it must not be below."""

    def state(self, ratios: Sequence[float]) -> State:
        """Judge one ratio for each round; within the noise is a bound that their 95 % interval holds."""
        if len(ratios) < _LEAST_ROUNDS:
            return "too few rounds"
        found = median_interval(ratios)
        if (found.high <= self.value) if self.upper else (found.low >= self.value):
            return "met"
        missed = (found.low > self.value) if self.upper else (found.high < self.value)
        return "missed" if missed else "within the noise"

    def __str__(self) -> str:
        return f"at {'most' if self.upper else 'least'} {self.value:g}"


def at_most(value: float) -> Bound:
    """An upper bound."""
    return Bound(value=value, upper=True)


def at_least(value: float) -> Bound:
    """A lower bound."""
    return Bound(value=value, upper=False)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A figure of Uncork, what it is divided by, and where the ratio should lie."""

    figure: Figure
    rival: str
    """BEST, LIMIT, or a peer, of which the best setting counts."""
    bound: Bound | None
    """None: the ratio is only reported."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a mark."""

    mark: Mark
    rival: str
    """Whose figure it was divided by in the end; as in the mark if there was nobody."""
    ratio: Interval | None
    rounds: int
    """In how many rounds both had a figure."""
    state: State


def _mark(figure: Figure, rival: str, bound: Bound | None = None) -> Mark:
    return Mark(figure=figure, rival=rival, bound=bound)


_LIGHT = ModelPoint(intercept_ms=1, slope_ms=0.02)
_MIDDLE = ModelPoint(intercept_ms=5, slope_ms=0.1)
_HEAVY = ModelPoint(intercept_ms=40, slope_ms=1)
_THRIFT = _mark("front_cpu", "mosec", at_most(1.0))
_FULL = _mark("requests_per_second", LIMIT, at_least(0.88))
_LONE = _mark("p50", "unbatched", at_most(1.05))
_CLOSED: Mapping[tuple[ModelPoint, int], Sequence[Mark]] = {
    (_LIGHT, 1): [_mark("p50", "unbatched", at_most(1.1))],
    (_LIGHT, 16): [_mark("requests_per_second", BEST, at_least(1.1))],
    (_LIGHT, 64): [_mark("requests_per_second", BEST, at_least(1.2))],
    (_LIGHT, 256): [_mark("requests_per_second", BEST, at_least(1.4)), _THRIFT],
    **{(model, 1): [_LONE] for model in (_MIDDLE, _HEAVY)},
    **{(model, clients): [_FULL] for model in (_MIDDLE, _HEAVY) for clients in (16, 64)},
    **{(model, 256): [_FULL, _THRIFT] for model in (_MIDDLE, _HEAVY)},
}
_PROMPT = [_mark("p99", BEST, at_most(1.0)), _mark("in_goal", BEST, at_least(1.0))]
_PROMPT += [_mark("soon", BEST, at_least(1.0))]
_OPEN: Mapping[ModelPoint, Sequence[Mark]] = {
    _LIGHT: [_mark("p50", BEST, at_most(0.9)), _mark("p99", BEST, at_most(0.9))],
    _MIDDLE: _PROMPT,
    _HEAVY: _PROMPT,
}

TWO_WORKERS = at_least(1.9)
"""Requests per second with two workers, by those with one."""
LARGE_BODIES = at_least(0.5)
"""Bytes per second, by those of a bare server that drops them."""
FLAT = at_most(1.5)
"""The gateway's processor time per request, by that at the start of the range."""
FLAT_FROM_CONNECTIONS = 16


def closed_marks(model: ModelPoint | None, *, clients: int) -> list[Mark]:
    """What is judged with so many clients; a ratio to the best peer is always there."""
    found = list(_CLOSED.get((model, clients), ())) if model else []
    return _with_best(found, "p50" if clients == 1 else "requests_per_second")


def open_marks(model: ModelPoint) -> list[Mark]:
    """What is judged at every rate; ratios of p50 and p99 to the best peer are always there."""
    return _with_best(list(_OPEN.get(model, ())), "p50", "p99")


def _with_best(marks: list[Mark], *figures: Figure) -> list[Mark]:
    there = {mark.figure for mark in marks if mark.rival == BEST}
    return marks + [_mark(figure, BEST) for figure in figures if figure not in there]


def verdict(
    mark: Mark, rounds: Mapping[str, Sequence[Round | None]], *, ours: str, limit: float | None
) -> Verdict:
    """Judge the rounds of one point, by the name of the entrant, by a mark."""
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
        return others
    # An entrant is named after its peer and its setting.
    return [name for name in others if name.split()[0] == mark.rival]
