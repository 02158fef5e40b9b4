"""Made-up rounds of a comparison with peers, and its result."""

from collections.abc import Sequence

from benchmarks.harness.rounds import Round
from benchmarks.peers.contest import Point, WorkResult


def result(**found: Sequence[Round | None]) -> WorkResult:
    """The result of one model and one load; underscores in names of entrants are blanks."""
    point = Point(
        work="sleep",
        load="64 clients",
        connections=64,
        rate=None,
        limit=None,
        goal_s=None,
        rounds={name.replace("_", " "): each for name, each in found.items()},
        verdicts=[],
    )
    return WorkResult(work="sleep", points=[point], commands={}, left_out=[], wrong=[], last_words={})


def rounds(**figures: Sequence[float | None]) -> list[Round]:
    """Rounds with these figures, and the same other figures."""
    common = {
        "requests_per_second": 100.0,
        "p50": 0.002,
        "p99": 0.004,
        "in_goal": None,
        "soon": None,
        "front_cpu": 0.05,
        "all_cpu": 0.2,
        "refused": 0,
        "wrong": 0,
        "fault": "",
    }
    count = len(next(iter(figures.values())))
    return [
        Round(**{**common, **{name: each[number] for name, each in figures.items()}})  # type: ignore[arg-type]
        for number in range(count)
    ]
