"""Made-up rounds of a comparison with peers, and its result."""

from collections.abc import Sequence

from benchmarks.harness.rounds import Round
from benchmarks.peers.catalogue import ModelPoint
from benchmarks.peers.contest import Contest, Point, Settings
from benchmarks.peers.entrants import sleep_work
from benchmarks.peers.loads import ClosedLoop


def result(**found: Sequence[Round | None]) -> Contest:
    """The result of one model and one load; underscores in names of entrants are blanks."""
    point = Point(
        work="sleep",
        load=ClosedLoop(connections=64, seconds=1.0, generator="wrk"),
        limit=None,
        rounds={name.replace("_", " "): each for name, each in found.items()},
        verdicts=[],
    )
    work = sleep_work(ModelPoint(intercept_ms=1, slope_ms=0.02))
    settings = Settings(connections=[64], rates=[], rounds=3, seconds=1.0, generator="wrk")
    return Contest(work=work, settings=settings, tell=print, points=[point])


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
