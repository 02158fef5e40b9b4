"""The kinds of load that entrants are put under, and what is seen of an entrant in one round."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.harness.generators import measure
from benchmarks.peers.entrants import Running
from uncork_dispatcher.plural import plural
from uncork_loadtests.generator.fleet import LoadTestError, Outcome, run
from uncork_loadtests.generator.samples import (
    BEYOND,
    LOST,
    SHED,
    UNANSWERED,
    Samples,
    Spread,
    is_good,
    latencies_s,
    measured,
)
from uncork_loadtests.servers import BenchError, Cpu
from uncork_loadtests.traffic.plan import Payload, Plan

SOON_S = 0.3
"""The gateway's default latency goal: goodput counts what is answered within it."""
# Half of the answers must come within it, else a queue is building up.
_KEEPS_UP_S = 1.0
# A fifth more than it takes on average, for chance makes fewer now and then.
_REQUESTS_FOR_P99 = 1.2 * BEYOND * 100


class VoidError(BenchError):
    """A round says nothing about the server: the generator fell behind."""


class OverloadError(BenchError):
    """A server does not keep up with the load; asking it again would only cost time."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was seen of one entrant in one round; None for what the generator does not tell."""

    requests_per_second: float
    """Requests answered with success."""
    p50: float | None
    """Median latency in seconds."""
    p99: float | None
    in_goal: float | None
    """Open loop: share of all requests that were answered within the goal."""
    soon: float | None
    """Open loop: the same within 300 ms."""
    front_cpu: float | None
    """Processor seconds per 1000 requests, of the process that speaks HTTP."""
    all_cpu: float | None
    """The same, of all processes of the server together."""
    generator_cpu: float
    """The same, of the load generator."""
    refused: int
    """Requests answered with 503; with wrk, all that were answered without success."""
    wrong: int
    """Answers that were not the right one; a closed loop tells them as a fault, if it looks at them."""
    fault: str
    """What went wrong beyond refusals; empty if nothing did."""


@dataclass(frozen=True, kw_only=True)
class ClosedLoop:
    """Clients that each ask again when they have their answer."""

    connections: int
    seconds: float
    generator: str
    """python or wrk."""

    @property
    def title(self) -> str:
        """What the tables call it."""
        return f"closed loop, {plural(self.connections, 'client')}"

    def measure(self, each: Running, *, turn: int) -> Round:
        """Put the load on one entrant, nothing else should run; every round is alike.

        Raises BenchError if the entrant or the generator breaks.
        """
        traffic = replace(each.traffic, connections=self.connections, seconds=self.seconds)
        before = each.server.cpu()
        trial = measure(each.front, traffic=traffic, generator=self.generator)
        seen = trial.seen
        return Round(
            requests_per_second=seen.requests_per_second,
            p50=seen.p50,
            p99=seen.p99,
            in_goal=None,
            soon=None,
            front_cpu=trial.server_cpu,
            all_cpu=_per_1000(_all(before), _all(each.server.cpu()), count=seen.answers),
            generator_cpu=seen.generator_cpu,
            refused=seen.refused,
            wrong=0,
            fault=seen.fault,
        )


@dataclass(frozen=True, kw_only=True)
class OpenLoop:
    """Requests at random times, whatever becomes of earlier ones: the same times for all in a round."""

    rate: float
    """Requests per second on average."""
    goal_s: float
    seconds: float

    @property
    def title(self) -> str:
        """What the tables call it."""
        return f"open loop, {self.rate:,.0f}/s"

    def measure(self, each: Running, *, turn: int) -> Round:
        """Put the load of round number `turn` on one entrant: the number seeds the schedule.

        Raises VoidError, OverloadError, or another BenchError if the entrant or the generator breaks.
        """
        before, front_before = each.server.cpu(), each.front.cpu()
        outcome = self._run(each, seed=turn)
        count = len(outcome.samples)
        front_cpu = _per_1000(_own(front_before), _own(each.front.cpu()), count=count)
        all_cpu = _per_1000(_all(before), _all(each.server.cpu()), count=count)
        return open_round(outcome, front_cpu=front_cpu, all_cpu=all_cpu)

    def _run(self, each: Running, *, seed: int) -> Outcome:
        plan = Plan(
            url=each.server.url(each.traffic.path),
            payload=Payload(bodies=tuple(each.traffic.bodies), expected=tuple(each.traffic.expected)),
            arrivals="poisson",
            rate=self.rate,
            seconds=self.seconds,
            seed=seed,
            goal_s=self.goal_s,
        )
        try:
            outcome = run(plan)
        except LoadTestError as error:
            raise BenchError(str(error)) from error
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome


def open_round(outcome: Outcome, *, front_cpu: float | None, all_cpu: float | None) -> Round:
    """Sum up what an open loop saw; VoidError or OverloadError if that says nothing, or nothing new."""
    if outcome.void:
        raise VoidError(outcome.void)
    ours, summary = measured(outcome.samples, seconds=outcome.measured_s), outcome.summary()
    found = Round(
        requests_per_second=summary.answered_per_s,
        p50=_seconds(summary.latency, "50"),
        p99=_seconds(summary.latency, "99"),
        in_goal=summary.in_goal,
        soon=_share_within(ours, SOON_S),
        front_cpu=front_cpu,
        all_cpu=all_cpu,
        generator_cpu=sum(outcome.cpu_s) / max(1, len(ours)) * 1000,
        refused=summary.shed,
        wrong=summary.wrong,
        fault=_fault(summary.wrong, outcome.first_wrong, summary.statuses),
    )
    _check_keeps_up(ours, found)
    return found


def long_enough_s(seconds: float, *, rate: float) -> float:
    """How long to measure an open loop: `seconds`, or as long as it takes to speak of a p99."""
    return max(seconds, _REQUESTS_FOR_P99 / rate)


def _check_keeps_up(ours: Samples, found: Round) -> None:
    late = found.p50 is not None and found.p50 > _KEEPS_UP_S
    unanswered = int((ours["status"] == UNANSWERED).sum())
    if late or unanswered:
        told = f"its median latency is {found.p50:.1f} s" if found.p50 else "there is no answer"
        raise OverloadError(f"does not keep up: {told}, {unanswered} of {len(ours)} never answered")


def _fault(wrong: int, first_wrong: str, statuses: Mapping[int, int]) -> str:
    found = [f"{plural(wrong, 'wrong answer')}, the first: {first_wrong}"] if wrong else []
    others = {s: n for s, n in statuses.items() if s // 100 != 2 and s not in (SHED, LOST)}
    found += [f"{count} x {status}" for status, count in others.items()]
    if LOST in statuses:
        found.append(f"{statuses[LOST]} connections lost")
    return "; ".join(found)


def _share_within(ours: Samples, seconds: float) -> float | None:
    in_time = is_good(ours) & (latencies_s(ours) <= seconds)
    return float(in_time.mean()) if len(ours) else None


def _seconds(spread: Spread | None, percentile: str) -> float | None:
    value_ms = spread.percentiles_ms[percentile] if spread else None
    return None if value_ms is None else value_ms / 1000


def _per_1000(before: float | None, after: float | None, *, count: int) -> float | None:
    return None if before is None or after is None or not count else (after - before) / count * 1000


def _own(cpu: Cpu | None) -> float | None:
    return cpu.server if cpu else None


def _all(cpu: Cpu | None) -> float | None:
    return cpu.server + cpu.workers if cpu else None
