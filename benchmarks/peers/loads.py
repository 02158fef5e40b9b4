"""The kinds of load of the comparison, and whether an entrant keeps up."""

from dataclasses import dataclass, replace
from typing import ClassVar

from benchmarks.harness.rounds import Round, Target, measure
from benchmarks.harness.wrk import run_wrk
from benchmarks.peers.marks import Figure
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.samples import BEYOND
from uncork_loadtests.servers import BenchError

# Half of the answers must come within this, or a queue is building up.
_KEEPS_UP_S = 1.0
# A fifth more than needed on average, because chance gives fewer now and then.
_REQUESTS_FOR_P99 = 1.2 * BEYOND * 100


class OverloadError(BenchError):
    """A server does not keep up; measuring it again would only cost time."""


@dataclass(frozen=True, kw_only=True)
class ClosedLoop:
    """Clients that wait for their answers; every round is alike."""

    connections: int
    seconds: float
    generator: str
    """python or wrk."""
    processes: int = 1
    """Of the generator in Python."""

    @property
    def title(self) -> str:
        return f"closed loop, {plural(self.connections, 'client')}"

    @property
    def figure(self) -> Figure:
        """What matters most."""
        return "p50" if self.connections == 1 else "requests_per_second"

    def measure(self, each: Target, *, turn: int) -> Round:
        """Put the load on one entrant; raise BenchError if entrant or generator fails."""
        plan = replace(each.plan, clients=self.connections, seconds=self.seconds, processes=self.processes)
        return measure(replace(each, plan=plan), load=run_wrk if self.generator == "wrk" else None)


@dataclass(frozen=True, kw_only=True)
class OpenLoop:
    """Poisson arrivals; all entrants get the same schedule in a round."""

    rate: float
    """Mean requests per second."""
    goal_s: float
    seconds: float

    figure: ClassVar[Figure] = "p99"

    @property
    def title(self) -> str:
        return f"open loop, {self.rate:,.0f}/s"

    def measure(self, each: Target, *, turn: int) -> Round:
        """Put the load on one entrant; the number of the round is the seed.

        Raises:
            OverloadError: if the entrant does not keep up.
            BenchError: if entrant or generator fails.
        """
        plan = replace(
            each.plan, clients=None, rate=self.rate, seconds=self.seconds, seed=turn, goal_s=self.goal_s
        )
        found = measure(replace(each, plan=plan))
        check_keeps_up(found)
        return found


def check_keeps_up(found: Round) -> None:
    """Raise OverloadError if a valid round shows a growing queue."""
    late = found.p50 is not None and found.p50 > _KEEPS_UP_S
    if not found.void and (late or found.unanswered):
        latency = f"its median latency is {found.p50:.1f} s" if found.p50 else "no request was answered"
        raise OverloadError(f"does not keep up: {latency}, {found.unanswered} never answered")


def long_enough_s(seconds: float, *, rate: float) -> float:
    """Return `seconds`, or more if a p99 at this rate needs it."""
    return max(seconds, _REQUESTS_FOR_P99 / rate)
