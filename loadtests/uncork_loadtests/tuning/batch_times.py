"""Execution times of a running service's batches by size, and the line through them.

A batch of n requests comes from n clients in a closed loop, on a server whose policy holds every request for
a while: all clients are answered at once and return as one batch. That works for every kind of input. Sizes
and times are read from the responses, so a batch that was split counts as two.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import uvloop

from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.samples import Samples, is_good, latencies_s
from uncork_loadtests.generator.share import ShareResult, run_here
from uncork_loadtests.servers import BenchError, Server
from uncork_loadtests.traffic.plan import Plan

HOLD_MS = 100.0
"""How long the policy must hold requests; enough for hundreds of clients."""

# In rounds, so that a disturbance of the machine affects all sizes alike.
_ROUNDS = 3
_BATCHES = 2
_BOUND_S = 600.0
# A single disturbance of the machine is not noise of the model.
_OUTLIER = 2.0
# A step: this much more than the slope explains, between sizes this close.
_STEP = 1.2
_NEXT = 1.3


@dataclass(frozen=True, kw_only=True)
class SizeTime:
    """Execution times of batches of one size."""

    rows: int
    median_ms: float
    times_ms: tuple[float, ...]
    """One per batch."""


@dataclass(frozen=True, kw_only=True)
class BatchTimes:
    """The measurement of a service."""

    sizes: tuple[SizeTime, ...]
    """Rising."""
    rows_per_request: int
    overhead_ms: float
    """Latency of a lone request besides queue and batch: transport and the gateway's own work."""
    gateway_cpu_us: float | None
    """Processor time of the gateway per request, if known."""
    stopped: str
    """Why larger batches were not measured, or ""."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Batches of n rows take intercept + slope * n."""

    intercept_ms: float
    slope_ms: float
    noise_cv: float
    """Coefficient of variation of the times of batches of one size."""
    worst_rows: int
    """The size furthest from the line."""
    worst_deviation: float
    """Its relative deviation: 0.3 is 30 % longer than the line."""
    steps: tuple[int, ...]
    """Sizes after which one more row makes a batch much longer, as when a model pads to powers of two."""

    def milliseconds(self, rows: float) -> float:
        return self.intercept_ms + self.slope_ms * rows


def sizes_up_to(largest: int) -> list[int]:
    """Return the powers of two, the sizes after them (where a padding model is slower), and the largest."""
    powers = [1 << power for power in range(largest.bit_length())]
    return sorted({size for power in powers for size in (power, power + 1) if size <= largest} | {largest})


def measure(
    server: Server, plan: Plan, *, largest: int, goal_ms: float, tell: Callable[[str], None]
) -> BatchTimes:
    """Measure batches of 1 to `largest` requests, in rounds, up to the first size slower than the goal.

    The server's policy must hold requests for `HOLD_MS`.

    Raises:
        BenchError: if a lone request has no good response with batch headers, or if a size fails that
            worked before.
    """
    first, stopped = _first_round(plan, largest=largest, goal_ms=goal_ms, tell=tell)
    before, rounds = server.cpu(), []
    for number in range(1, _ROUNDS):
        for clients in first:
            tell(f"measuring batches of {clients}, round {number + 1} of {_ROUNDS}")
            samples, fault = drive(_reordered(plan, clients, number), clients, batches=_BATCHES)
            rounds.append(samples)
            if fault:
                raise BenchError(
                    f"{plural(clients, 'concurrent request')} failed, after succeeding before: {fault}"
                )
    after = server.cpu()
    seen: dict[int, list[float]] = {}
    for samples in (*first.values(), *rounds):
        for rows, times in _batches(samples).items():
            seen.setdefault(rows, []).extend(times)
    lone, requests = first[1], sum(map(len, rounds))
    rest_ms = latencies_s(lone) * 1000 - lone["queued_ms"] - lone["batch_ms"]
    return BatchTimes(
        sizes=tuple(
            SizeTime(rows=rows, median_ms=float(np.median(times)), times_ms=tuple(times))
            for rows, times in sorted(seen.items())
        ),
        rows_per_request=int(lone["batch_rows"][0]),
        overhead_ms=max(0.0, float(np.median(rest_ms))),
        gateway_cpu_us=1e6 * (after.server - before.server) / requests if before and after else None,
        stopped=stopped,
    )


def _first_round(
    plan: Plan, *, largest: int, goal_ms: float, tell: Callable[[str], None]
) -> tuple[dict[int, Samples], str]:
    """Return the first samples by size, and why larger sizes were not measured, or ""."""
    found: dict[int, Samples] = {}
    for clients in sizes_up_to(largest):
        tell(f"measuring batches of {clients}")
        # The first batch of a size may be slow.
        mixed = _reordered(plan, clients, 0)
        drive(mixed, clients, batches=1)
        samples, fault = drive(mixed, clients, batches=_BATCHES)
        if _too_long(samples, goal_ms):
            samples, fault = drive(mixed, clients, batches=_BATCHES)  # the machine may have been busy
        at_once = plural(clients, "concurrent request")
        if fault:
            if clients == 1:
                raise BenchError(f"a single request failed: {fault}")
            return found, f"{at_once} failed: {fault}"
        found[clients] = samples
        if _too_long(samples, goal_ms):
            return found, f"{at_once} took longer than the goal"
    return found, ""


def _too_long(samples: Samples, goal_ms: float) -> bool:
    return float(np.median(samples["batch_ms"])) > goal_ms


def _reordered(plan: Plan, clients: int, number: int) -> Plan:
    """Return the plan with other bodies first: a batch must not always have those at the top of a file."""
    return replace(plan, payload=plan.payload.shuffled(f"{plan.seed} {clients} {number}"))


def drive(plan: Plan, clients: int, *, batches: int) -> tuple[Samples, str]:
    """Run batches of `clients` requests; return their samples, and the first fault or "".

    Raises:
        BenchError: if the server cannot be reached, its responses are not HTTP/1.1, or a body cannot be made.
    """
    plan = replace(
        plan,
        clients=clients,
        processes=1,
        warmup_s=0.0,
        think_s=0.0,
        seconds=_BOUND_S,
        limit=clients * batches,
    )
    try:
        result, samples = uvloop.run(run_here(plan))
    except (OSError, ValueError) as error:
        raise BenchError(str(error)) from None
    return samples, _fault(samples, result)


def _fault(samples: Samples, result: ShareResult) -> str:
    bad = samples[~is_good(samples)]
    if len(bad):
        status = int(bad["status"][0])
        said = result.first_errors.get(status)
        return f"status {status}" + (f": {said}" if said else "")
    if samples["wrong"].any():
        return "a wrong response"
    if not samples["batch_rows"].all() or np.isnan(samples["batch_ms"]).any():
        return "the response has no X-Batch-Size or no Server-Timing of its batch"
    return ""


def _batches(samples: Samples) -> dict[int, list[float]]:
    """Return the times of single batches by size; all responses of a batch state the same."""
    found: dict[int, list[float]] = {}
    for rows, batch_ms in np.unique(samples[["batch_rows", "batch_ms"]]).tolist():
        found.setdefault(rows, []).append(batch_ms)
    return found


def fit(sizes: Sequence[SizeTime]) -> Line:
    """Fit the line by non-negative least squares of the relative error."""
    rows = np.array([size.rows for size in sizes], dtype=float)
    times = np.maximum([size.median_ms for size in sizes], 1e-6)
    columns = np.column_stack([np.ones_like(rows), rows]) / times[:, None]
    intercept, slope = _non_negative(columns)
    deviations = times / (intercept + slope * rows) - 1
    worst = int(np.argmax(np.abs(deviations)))
    return Line(
        intercept_ms=float(intercept),
        slope_ms=float(slope),
        noise_cv=_noise(sizes),
        worst_rows=sizes[worst].rows,
        worst_deviation=float(deviations[worst]),
        steps=tuple(
            size.rows
            for size, above, beyond in zip(sizes, sizes[1:], sizes[2:], strict=False)
            if _is_step(size, above, beyond, slope=float(slope))
        ),
    )


def _non_negative(columns: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the weights of two positive columns whose sum is closest to 1, none of them negative."""
    intercept, slope = np.linalg.lstsq(columns, np.ones(len(columns)))[0]
    if len(columns) > 1 and intercept >= 0 and slope >= 0:
        return float(intercept), float(slope)
    # Then the best ones have a zero. One size fits both ways; then rows take the time if there are several.
    alone = columns.sum(axis=0) / (columns**2).sum(axis=0)
    errors = ((columns * alone - 1) ** 2).sum(axis=0)
    is_flat = columns[0, 1] <= columns[0, 0] if len(columns) == 1 else errors[0] <= errors[1]
    return (float(alone[0]), 0.0) if is_flat else (0.0, float(alone[1]))


def _noise(sizes: Sequence[SizeTime]) -> float:
    ratios = [time / max(size.median_ms, 1e-6) for size in sizes for time in size.times_ms]
    return math.sqrt(float(np.mean((np.minimum(ratios, _OUTLIER) - 1) ** 2)))


def _is_step(size: SizeTime, above: SizeTime, beyond: SizeTime, *, slope: float) -> bool:
    """Return True if slightly more rows make every batch much longer, and even more rows do not undo it."""
    if above.rows > size.rows * _NEXT:
        return False
    least_ms = _STEP * (max(size.times_ms) + slope * (above.rows - size.rows))
    return min(above.times_ms) > least_ms and beyond.median_ms > least_ms
