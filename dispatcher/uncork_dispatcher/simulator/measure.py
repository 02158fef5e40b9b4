"""Measures a policy in a cell.

The measurement starts after a warm-up, in which the policy learns. In an open loop, the measured arrivals
depend only on kind, rate and seed, so every policy gets the same arrivals. The warm-up uses a separate stream
before them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from uncork_dispatcher.policies import make_policy
from uncork_dispatcher.simulator.cells import BATCHES, MOST_REQUESTS, Cell, requests_to_measure
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Answered, Run, Scenario
from uncork_dispatcher.simulator.traffic import Clients, open_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of one policy in one cell after the warm-up; each request has one row.

    Attributes:
        mean_ms: mean latency of the answered requests, from arrival to response; NaN without responses.
        p50_ms: median latency.
        p99_ms: 99th percentile of the latency.
        long_p99_ms: 99th percentile of the latency of the longest tenth of the requests, ties included; of
            all requests if the cell has no lengths.
        rows_per_s: responses per second.
        goodput_per_s: responses within the goal, per second.
        batch_rows: mean rows in a batch; NaN without batches.
        batches: batches started.
        answered: requests answered.
        shed: requests shed.
        inside_goal: share of the responses that were within the goal; NaN without responses.
        utilisation: share of the workers' time that batches took.
        padding_share: share of the work that was padding; 0 if padding takes no time, NaN without batches.
        bulk_per_s: rows of the second class in responses, per second. Latencies, responses and shed requests
            count the first class only; batches and utilisation include both.
    """

    mean_ms: float
    p50_ms: float
    p99_ms: float
    long_p99_ms: float
    rows_per_s: float
    goodput_per_s: float
    batch_rows: float
    batches: float
    answered: float
    shed: float
    inside_goal: float
    utilisation: float
    padding_share: float
    bulk_per_s: float = 0.0

    @property
    def shed_share(self) -> float:
        return self.shed / (self.shed + self.answered) if self.shed else 0.0

    @property
    def in_goal(self) -> float:
        """Share of all requests that were answered within the goal; NaN without requests."""
        if not self.answered:
            return 0.0 if self.shed else math.nan
        return self.inside_goal * (1 - self.shed_share)


def measure(
    cell: Cell, policy: str, seed: int, *, batches: int = BATCHES, requests: int | None = None
) -> Measured:
    """Run one cell under one policy, and measure it from the end of the warm-up to the last arrival.

    The number of measured requests is ``requests``, by default :func:`requests_to_measure` for ``batches``.
    The warm-up has a quarter as many, or more if the policy needs a longer one (6 s for ``cork-classic``),
    but at most 200,000 requests. So above 33,000 rows per second, the measurement of ``cork-classic``
    begins before its second fit, and until then ``cork-classic`` behaves like release-when-free.

    Raises:
        ValueError: if there is no such policy, no such arrivals, or fewer than 2 requests to measure.
        OSError: if recorded arrivals cannot be read.
    """
    count = requests if requests is not None else requests_to_measure(cell, batches=batches)
    if count < 2:
        raise ValueError(f"at least 2 requests must be measured, got {count}")
    warm_up_s = make_policy(policy, limit_rows=cell.limit_rows).warm_up_s
    warm_up = math.ceil(min(MOST_REQUESTS, max(0.25 * count, cell.rate * warm_up_s)))
    traffic, lengths = _traffic(cell, seed, count, warm_up), cell.row_lengths
    run = simulate(
        Scenario(
            service=cell.service,
            arrivals=traffic,
            workers=cell.workers,
            limit_rows=cell.limit_rows,
            goal_s=cell.goal_ms / 1000,
            policy=policy,
            requests=warm_up + count,
            rows=cell.rows,
            lengths=None if lengths is None else lengths.draw,
            known=cell.known,
            groups=cell.draw_group,
            sources=cell.sources,
            bulk=Clients(count=cell.bulk_clients) if cell.bulk_clients else None,
            bulk_rows=cell.bulk_rows,
            transport_s=cell.transport_ms / 1000,
            seed=seed,
        )
    )
    times = traffic
    if isinstance(times, Clients):
        # The arrival of a shed request is unknown; a closed loop without overload has few of them.
        shed = [at for at, shed in run.shed if shed.request > 0]
        times = sorted([one.arrival for one in run.answered if not one.bulk] + shed)
    return _read(cell, run, warm_up=warm_up, begin=times[min(warm_up, len(times) - 1)], end=times[-1])


def _traffic(cell: Cell, seed: int, count: int, warm_up: int) -> Clients | list[float]:
    """Return the clients of a closed loop, or the arrival times of an open loop, warm-up included."""
    if cell.clients is not None:
        return Clients(
            count=cell.clients,
            round_trip_s=cell.round_trip_ms / 1000,
            think_s=cell.think_ms / 1000,
            request_s=cell.request_ms / 1000,
        )
    # Text as a seed gives the same numbers in every process, unlike the hash of a tuple.
    name = f"{cell.arrivals} {cell.rate!r} {seed}"
    # The shape of changing traffic would be cut off: warm up on its average.
    steady = cell.arrivals if cell.arrivals.startswith("gamma") else "poisson"
    before = open_loop(steady, rate=cell.rate, count=warm_up, random_=random.Random(f"{name} warm-up"))
    measured = open_loop(cell.arrivals, rate=cell.rate, count=count, random_=random.Random(name))
    # With a gap: a recording starts at 0, which must not coincide with the last arrival of the warm-up.
    start = before[-1] + 1 / cell.rate
    return before + [start + time for time in measured]


def _read(cell: Cell, run: Run, *, warm_up: int, begin: float, end: float) -> Measured:
    """Measure latencies of the requests since ``begin``, and all else from ``begin`` to ``end``."""
    span = max(end - begin, 1e-9)
    answered = [one for one in run.answered if one.arrival >= begin and not one.bulk]
    batches = [batch for batch in run.batches if begin <= batch.started <= end]
    goal_s = cell.goal_ms / 1000 + 1e-9
    in_time = [one for one in run.answered if begin < one.finish <= end]
    finished = [one for one in in_time if not one.bulk]
    work = sum(
        max(0.0, min(batch.started + batch.seconds, end) - max(batch.started, begin)) for batch in run.batches
    )
    mean, p50, p99 = _latencies_ms(answered)
    _, _, long_p99 = _latencies_ms(_longest_tenth(answered))
    padding = cell.service.padding * sum(batch.padded - batch.rows for batch in batches)
    rows = sum(batch.rows for batch in batches)
    return Measured(
        mean_ms=mean,
        p50_ms=p50,
        p99_ms=p99,
        long_p99_ms=long_p99,
        rows_per_s=len(finished) / span,
        goodput_per_s=sum(one.finish - one.arrival <= goal_s for one in finished) / span,
        batch_rows=(
            fmean(batch.requests if cell.lengths else batch.rows for batch in batches)
            if batches
            else math.nan
        ),
        batches=len(batches),
        answered=len(answered),
        # Requests are numbered from 1 as they are sent.
        shed=sum(shed.request > warm_up for _, shed in run.shed),
        inside_goal=(fmean(one.finish - one.arrival <= goal_s for one in answered) if answered else math.nan),
        utilisation=work / (cell.workers * span),
        padding_share=padding / (padding + rows) if batches else math.nan,
        bulk_per_s=sum([one.length for one in in_time if one.bulk]) / span,
    )


def _longest_tenth(answered: Sequence[Answered]) -> Sequence[Answered]:
    """Return the tenth of the requests with the longest rows, ties included."""
    if not answered:
        return answered
    at_least = sorted(one.length for one in answered)[math.ceil(0.9 * len(answered)) - 1]
    return [one for one in answered if one.length >= at_least]


def _latencies_ms(answered: Sequence[Answered]) -> tuple[float, float, float]:
    """Return mean, median and 99th percentile of the latency in ms; NaN without requests."""
    if not answered:
        return math.nan, math.nan, math.nan
    latencies = sorted((one.finish - one.arrival) * 1000 for one in answered)
    p50, p99 = (latencies[math.ceil(share * len(latencies)) - 1] for share in (0.5, 0.99))
    return fmean(latencies), p50, p99
