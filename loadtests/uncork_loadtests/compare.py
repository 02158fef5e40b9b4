"""Compare policies: one service and one load under each, in turns, round by round.

Every policy has its own server; all are started first. The policies of a round get the same bodies in the
same order and the same arrivals; each round has others. Ratios are taken within rounds, so that disturbances
of the machine affect all policies alike.
"""

import contextlib
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uncork_dispatcher.simulator.compare import ratio
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.measurement import Verdict, load, valid_if_possible, verdict
from uncork_loadtests.servers import Cpu, Server
from uncork_loadtests.targets import aimed, our_service, padding
from uncork_loadtests.traffic.plan import Plan

_RESAMPLES = 9999
# By bootstrap, the interval of 2 to 4 values is their range, which holds the median with 50, 75 and 88 %.
_LEAST_TO_RESAMPLE = 5


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median and its 95 % confidence interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.median:.3f}"
        return f"{self.median:.3f} ({self.low:.3f} .. {self.high:.3f})"


METRICS = (
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "long_mean_ms",
    "long_p99_ms",
    "answered_per_s",
    "in_goal",
    "batch_rows",
    "padding_share",
    "gateway_cpu_us",
    "workers_cpu_us",
)
"""The figures of a Turn that are compared."""


@dataclass(frozen=True, kw_only=True)
class Turn(Verdict):
    """One measurement of one policy. None: unknown, or too few responses."""

    mean_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    long_mean_ms: float | None = None
    """Of requests with long bodies; None if bodies are about equal."""
    long_p99_ms: float | None = None
    answered_per_s: float
    in_goal: float | None
    batch_rows: float | None
    """Mean over batches."""
    padding_share: float | None = None
    """Share of padding in the work of the last batches; None if the gateway knows of none."""
    workers_cpu_us: float | None


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A void round."""

    number: int
    policy: str
    reason: str


WARM_UP = -1
"""The number of the round that is not counted."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """All measurements."""

    whole: Sequence[Mapping[str, Turn]]
    """Each valid round, by policy."""
    left_out: Sequence[LeftOut] = ()
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """One policy: medians over the rounds, and ratios to the first; None if a round lacks the figure."""

    policy: str
    medians: Mapping[str, float | None]
    ratios: Mapping[str, Interval | None]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The measurements of several policies under one load."""

    target: str
    plan: Plan
    rounds: Rounds
    results: Sequence[Result]
    """In the order of the request; empty without a complete round."""

    @property
    def faults(self) -> list[str]:
        if not self.rounds.whole:
            return ["no valid round remains"]
        return [
            f"{policy}: {fault}"
            for policy in self.rounds.whole[0]
            if (fault := _fault([one[policy] for one in self.rounds.whole]))
        ]


def compare(
    target: str,
    policies: Sequence[str],
    plan: Plan,
    *,
    rounds: int = 5,
    path: str | None = None,
    options: Sequence[str] = (),
    tell: Callable[[str], None],
) -> Comparison:
    """Start a server for each policy, load them in turns, and compare.

    Ctrl-C ends the comparison; complete rounds count.

    Args:
        policies: two or more; the first is the baseline.
        plan: its URL is replaced by that of each server; without a goal it gets the API's.
        path: of the API; None: the first API.
        options: more options of `uncork serve`.

    Raises:
        BenchError: if a server does not become ready or cannot be reached, or a generator failed.
        NoSuchApi: if the service has no API that batches at the path.
    """
    with contextlib.ExitStack() as stack:
        entrants = {}
        for policy in policies:
            tell(f"starting {target} with {policy}")
            command = [*options, "--policy", policy]
            server = stack.enter_context(our_service(target, options=command))
            entrants[policy] = server, aimed(plan, server, path=path)
        return alternate(target, entrants, rounds=rounds, tell=tell)


def alternate(
    target: str, entrants: Mapping[str, tuple[Server, Plan]], *, rounds: int, tell: Callable[[str], None]
) -> Comparison:
    """Load the server of each policy in turns, and compare the policies with the first.

    `entrants` maps each policy to its server and its plan; policies may share a server.
    """

    def measure(policy: str, number: int) -> Turn:
        tell(f"round {number + 1} of {rounds}: {policy}" if number >= 0 else f"warming up: {policy}")
        server, plan = entrants[policy]
        plan = of_round(plan, number)
        outcome, cpu = load(server, plan)
        found = padding(server, path=urllib.parse.urlsplit(plan.url).path)
        return _turn(outcome, cpu, padding_share=None if found is None else found.share)

    policies = list(entrants)
    done = take_turns(policies, rounds=rounds, measure=measure)
    return Comparison(
        target=target,
        plan=entrants[policies[0]][1],
        rounds=done,
        results=relate(policies, done.whole),
    )


def of_round(plan: Plan, number: int) -> Plan:
    """Return the plan of a round: with other arrivals or, in a closed loop, with bodies in another order.

    In a closed loop, a faster policy gets further through the bodies; in a file sorted by length, its bodies
    would have other lengths. In an open loop, all policies get equally far, and the file's order may matter.
    """
    plan = replace(plan, seed=plan.seed + number)
    if plan.clients is None:
        return plan
    return replace(plan, payload=plan.payload.shuffled(str(plan.seed)))


def take_turns(policies: Sequence[str], *, rounds: int, measure: Callable[[str, int], Turn]) -> Rounds:
    """Measure every policy in every round; each round starts with another policy.

    Before the first, every policy is loaded once without counting, so that it has learned and the service is
    warm, whichever policy comes first.

    A void turn is repeated up to twice; if it stays void its round is left out.
    """
    complete: list[dict[str, Turn]] = []
    left_out: list[LeftOut] = []
    try:
        for policy in policies:
            measure(policy, WARM_UP)
        for number in range(rounds):
            first = number % len(policies)
            turns: dict[str, Turn] = {}
            for policy in (*policies[first:], *policies[:first]):
                turns[policy] = valid_if_possible(partial(measure, policy, number))
                if turns[policy].void:
                    left_out.append(LeftOut(number=number, policy=policy, reason=turns[policy].void))
                    break
            else:
                complete.append({policy: turns[policy] for policy in policies})
    except KeyboardInterrupt:
        return Rounds(whole=complete, left_out=left_out, interrupted=True)
    return Rounds(whole=complete, left_out=left_out)


def relate(policies: Sequence[str], complete: Sequence[Mapping[str, Turn]]) -> list[Result]:
    """Summarise every policy, and compare it with the first, round by round."""
    if not complete:
        return []
    base = [one[policies[0]] for one in complete]
    results = []
    for policy in policies:
        turns = [one[policy] for one in complete]
        results.append(
            Result(
                policy=policy,
                medians={name: _median(_values(turns, name)) for name in METRICS},
                ratios={name: _ratio(_values(turns, name), _values(base, name)) for name in METRICS},
            )
        )
    return results


def _values(turns: Sequence[Turn], name: str) -> list[float | None]:
    return [getattr(turn, name) for turn in turns]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median_interval(known).median if len(known) == len(values) else None


def _ratio(values: Sequence[float | None], base: Sequence[float | None]) -> Interval | None:
    pairs = [one / other for one, other in zip(values, base, strict=True) if one is not None and other]
    return median_interval(pairs) if len(pairs) == len(values) else None


def _fault(turns: Sequence[Turn]) -> str:
    wrong = next((turn for turn in turns if turn.wrong), None)
    if wrong is not None:
        all_wrong = plural(sum(turn.wrong for turn in turns), "wrong response")
        return f"{all_wrong}; first: {wrong.first_wrong}"
    return next((turn.failure for turn in turns if turn.failure), "")


def _turn(outcome: Outcome, cpu: Cpu | None, *, padding_share: float | None) -> Turn:
    summary = outcome.summary()
    latency = summary.latency
    long = None if summary.long_bodies is None else summary.long_bodies.latency
    known = latency.percentiles_ms if latency is not None else {}
    return Turn(
        mean_ms=latency.mean_ms if latency is not None else None,
        p50_ms=known.get("50"),
        p99_ms=known.get("99"),
        long_mean_ms=None if long is None else long.mean_ms,
        long_p99_ms=None if long is None else long.percentiles_ms["99"],
        answered_per_s=summary.answered_per_s,
        in_goal=summary.in_goal,
        batch_rows=summary.batch_rows_by_batch,
        padding_share=padding_share,
        workers_cpu_us=cpu.workers * 1e6 if cpu is not None else None,
        **verdict(outcome, summary, cpu),
    )


def median_interval(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Return the median of one value per round, with its 95 % interval by bootstrap over the rounds.

    For fewer than 5 values, it is Student's t interval of their logarithms, from 0 to infinity if a value is
    not positive. A single value has an interval of width 0.
    """
    seen = np.asarray(values, dtype=float)
    median = float(np.median(seen))
    if len(seen) < 2:
        return Interval(median=median, low=median, high=median)
    if len(seen) < _LEAST_TO_RESAMPLE:
        _, low, high = ratio(seen.tolist(), [1.0] * len(seen))
        return Interval(median=median, low=min(low, median), high=max(high, median))
    # Imported here: it takes most of a second, and scipy is an extra.
    from scipy.stats import bootstrap  # type: ignore[import-untyped]

    found = bootstrap(
        (seen,), np.median, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    # Interpolation between equal values may be off by the last digit.
    return Interval(median=median, low=min(float(found.low), median), high=max(float(found.high), median))
