"""One sample per request, and its summary: percentiles, rates, the rule that voids a run.

Times are in seconds from the start of the measured time; the warm-up is negative. Latency counts from the
scheduled time, not from sending: waiting for a free connection or for a late generator is part of it.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNKNOWN = float("nan")
"""A time that no answer states."""
LOST = 0
"""Status of a request whose connection broke or could not be opened."""
UNANSWERED = -1
"""Status of a request that was still unanswered after the drain time."""
PENDING = -2
"""Status of a request that was still unanswered when Ctrl-C ended the run."""
SHED = 503
SAMPLE = np.dtype(
    [
        ("scheduled_s", "f8"),
        ("fired_s", "f8"),  # when the generator got to it
        ("sent_s", "f8"),  # later than fired_s if it waited for a connection; NaN: never sent
        ("done_s", "f8"),  # when its answer was complete; NaN: never
        ("status", "i4"),
        ("batch_rows", "i4"),  # 0: unknown
        ("queued_ms", "f4"),  # NaN: unknown
        ("batch_ms", "f4"),  # NaN: unknown
        ("wrong", "?"),
        ("first_s", "f8"),  # when the first chunk of a streamed answer arrived; done_s otherwise
        ("chunks", "i4"),  # 0: not streamed
        ("body_bytes", "i4"),  # of the request; 0: empty, or never sent
    ]
)
Samples = NDArray[Any]
"""An array of SAMPLE, in the order in which requests ended."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
BEYOND = 5
"""Requests that must be slower for a percentile to be reported: p99 needs 500 requests, p99.9 needs 5000."""
_DIFFERENT = 2.0
_LONG = 0.1
_VOID_LAG_S = 0.001
_VOID_SHARE = 0.1


def status_name(status: int) -> str:
    names = {
        SHED: "503 (refused)",
        LOST: "connection lost",
        UNANSWERED: "no response",
        PENDING: "no response by Ctrl-C",
    }
    return names.get(status, str(status))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean, percentiles and maximum of a set of times."""

    count: int
    mean_ms: float
    percentiles_ms: dict[str, float | None]
    """By name, such as "99.9"; None if fewer than BEYOND times are above it."""
    max_ms: float


@dataclass(frozen=True, kw_only=True)
class LongBodies:
    """The requests with the longest tenth of the bodies, or about a tenth if many are equally long."""

    from_bytes: int
    """Length of the shortest of these bodies."""
    shortest_bytes: int
    """Length of the shortest body of all requests."""
    longest_bytes: int
    latency: Spread | None
    """Of good answers; None without any."""
    in_goal: float | None
    """As in Summary."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The outcome of a run. Unless noted, it covers the requests scheduled in the measured time."""

    requests: int
    offered_per_s: float
    answered_per_s: float
    """Good answers (2xx) that arrived within the measured time, per second."""
    statuses: dict[int, int]
    """Requests by HTTP status, LOST, UNANSWERED or PENDING."""
    latency: Spread | None
    """Of good answers; None without any."""
    long_bodies: LongBodies | None
    """None unless the longest body is at least twice as long as the shortest."""
    first_chunk: Spread | None
    """From the scheduled time to the first chunk, of good streamed answers."""
    chunk_gap: Spread | None
    """Mean time between chunks, of good streamed answers with more than one chunk."""
    chunks_per_s: float | None
    chunks_by_answer: float | None
    in_goal: float | None
    """Share of all requests with a good answer within the goal; None without a goal.

    Leaves out those that were PENDING for no longer than the goal.
    """
    batch_rows_by_answer: float | None
    """Mean batch size over answers."""
    batch_rows_by_batch: float | None
    """Mean batch size over batches, if every request carries one row."""
    held: Spread | None
    """Time in the queue, as stated by answers."""
    batch: Spread | None
    """Execution time of the batch, as stated by answers."""
    rest: Spread | None
    """Latency minus queue and batch: transport, the gateway's own work, waiting for a connection."""
    wrong: int
    """Answers that differ from the expected one, over the whole run."""
    lag: Spread | None
    """How late the generator got to requests."""
    waited_for_connection: int
    """Requests sent later than the generator got to them, because no open connection was free."""

    @property
    def good(self) -> int:
        return sum(count for status, count in self.statuses.items() if 200 <= status < 300)

    @property
    def shed(self) -> int:
        return self.statuses.get(SHED, 0)


def measured(samples: Samples, *, seconds: float = inf) -> Samples:
    """Return the samples scheduled within the measured time."""
    due = samples["scheduled_s"]
    return samples[(due >= 0) & (due < seconds)]


def is_good(samples: Samples) -> NDArray[np.bool_]:
    """Return a mask of the samples with a 2xx response."""
    found: NDArray[np.bool_] = samples["status"] // 100 == 2
    return found


def latencies_s(samples: Samples) -> NDArray[np.float64]:
    """Return the time from schedule to complete response; NaN without a response."""
    found: NDArray[np.float64] = samples["done_s"] - samples["scheduled_s"]
    return found


def first_chunks_s(samples: Samples) -> NDArray[np.float64]:
    """Return the time from schedule to the first chunk of the response."""
    found: NDArray[np.float64] = samples["first_s"] - samples["scheduled_s"]
    return found


def spread(seconds: NDArray[Any]) -> Spread | None:
    """Summarise times; None if there are none."""
    if not len(seconds):
        return None
    times_ms = np.asarray(seconds, dtype=np.float64) * 1000
    # Nearest rank: interpolation between two modes gives a latency that never occurred.
    values = np.quantile(times_ms, [p / 100 for p in PERCENTILES], method="inverted_cdf")
    return Spread(
        count=len(times_ms),
        mean_ms=float(times_ms.mean()),
        percentiles_ms={
            f"{p:g}": float(value) if enough(len(times_ms), percentile=p) else None
            for p, value in zip(PERCENTILES, values, strict=True)
        },
        max_ms=float(times_ms.max()),
    )


def enough(count: int, *, percentile: float) -> bool:
    """Return True if `count` samples suffice to report a percentile."""
    return count * (100 - percentile) / 100 >= BEYOND - 1e-9


def summarise(samples: Samples, *, seconds: float, goal_s: float | None = None) -> Summary:
    """Summarise the samples of a run with `seconds` of measured time."""
    ours = measured(samples, seconds=seconds)
    good = ours[is_good(ours)]
    latency = latencies_s(good)
    streamed = good[good["chunks"] > 0]
    several = streamed[streamed["chunks"] > 1]
    statuses, counts = np.unique(ours["status"], return_counts=True)
    by_answer, by_batch = batch_rows(good["batch_rows"])
    stated = good[~np.isnan(good["queued_ms"]) & ~np.isnan(good["batch_ms"])]
    queued_s, batch_s = stated["queued_ms"] / 1000, stated["batch_ms"] / 1000
    in_time = is_good(samples) & (samples["done_s"] >= 0) & (samples["done_s"] < seconds)
    waited = ours["sent_s"] > ours["fired_s"]
    return Summary(
        requests=len(ours),
        offered_per_s=len(ours) / seconds,
        answered_per_s=int(in_time.sum()) / seconds,
        statuses={int(status): int(count) for status, count in zip(statuses, counts, strict=True)},
        latency=spread(latency),
        long_bodies=_long_bodies(ours, seconds=seconds, goal_s=goal_s),
        first_chunk=spread(first_chunks_s(streamed)),
        chunk_gap=spread((several["done_s"] - several["first_s"]) / (several["chunks"] - 1)),
        chunks_per_s=int(streamed["chunks"].sum()) / seconds if len(streamed) else None,
        chunks_by_answer=float(streamed["chunks"].mean()) if len(streamed) else None,
        in_goal=_in_goal(ours, seconds=seconds, goal_s=goal_s),
        batch_rows_by_answer=by_answer,
        batch_rows_by_batch=by_batch,
        held=spread(queued_s),
        batch=spread(batch_s),
        rest=spread(latencies_s(stated) - queued_s - batch_s),
        wrong=int(samples["wrong"].sum()),
        lag=spread(ours["fired_s"] - ours["scheduled_s"]),
        waited_for_connection=int((waited | np.isnan(ours["sent_s"])).sum()),
    )


def _in_goal(samples: Samples, *, seconds: float, goal_s: float | None) -> float | None:
    if goal_s is None:
        return None
    is_open = (samples["status"] == PENDING) & (seconds - samples["scheduled_s"] <= goal_s)
    samples = samples[~is_open]
    if not len(samples):
        return None
    return int((latencies_s(samples[is_good(samples)]) <= goal_s).sum()) / len(samples)


def long_from(sizes: NDArray[Any]) -> int | None:
    """Return the length of the shortest of the long bodies; None if no body is twice as long as another.

    They are a tenth of all, or as close to it as bodies of equal length allow.
    """
    if not len(sizes) or sizes.max() < _DIFFERENT * max(1, sizes.min()):
        return None
    ninth = np.quantile(sizes, 1 - _LONG, method="inverted_cdf")
    longer = sizes[sizes > ninth]
    too_few, too_many = _LONG - len(longer) / len(sizes), (sizes >= ninth).mean() - _LONG
    return int(longer.min() if len(longer) and too_few <= too_many else ninth)


def has_long_body(samples: Samples) -> NDArray[np.bool_]:
    """Return a mask of the samples with long bodies, as of :func:`long_from`."""
    sizes = samples["body_bytes"]
    from_bytes = long_from(sizes[sizes > 0])
    found: NDArray[np.bool_] = np.zeros(len(sizes), dtype=bool) if from_bytes is None else sizes >= from_bytes
    return found


def _long_bodies(samples: Samples, *, seconds: float, goal_s: float | None) -> LongBodies | None:
    long = samples[has_long_body(samples)]
    if not len(long):
        return None
    sizes = samples["body_bytes"][samples["body_bytes"] > 0]
    return LongBodies(
        from_bytes=int(long["body_bytes"].min()),
        shortest_bytes=int(sizes.min()),
        longest_bytes=int(sizes.max()),
        latency=spread(latencies_s(long[is_good(long)])),
        in_goal=_in_goal(long, seconds=seconds, goal_s=goal_s),
    )


def batch_rows(rows: NDArray[Any]) -> tuple[float | None, float | None]:
    """Return the mean batch size over responses, and over batches.

    A batch of n gives n responses, so the mean over responses weighs large batches more.
    """
    stated = rows[rows > 0]
    if not len(stated):
        return None, None
    return float(stated.mean()), float(len(stated) / (1 / stated).sum())


def void_reason(samples: Samples, *, seconds: float = inf) -> str:
    """Return why the run is void, or "".

    The p99 of the generator's lag may reach 1 ms, or a tenth of the latency's p99 if that is more. The
    latency of a streamed response is the time to its first chunk.
    """
    ours = measured(samples, seconds=seconds)
    if not len(ours):
        return ""
    lag_s = _p99(ours["fired_s"] - ours["scheduled_s"])
    good = ours[is_good(ours)]
    latency = np.where(good["chunks"] > 0, first_chunks_s(good), latencies_s(good))
    latency_s = _p99(latency) if len(latency) else 0.0
    allowed_s = max(_VOID_LAG_S, _VOID_SHARE * latency_s)
    if lag_s <= allowed_s:
        return ""
    return (
        f"the load generator fell behind: the p99 of its lag is {lag_s * 1000:.3g} ms, above the limit of "
        f"{allowed_s * 1000:.3g} ms (1 ms, or a tenth of the p99 latency if that is more)"
    )


def _p99(seconds: NDArray[Any]) -> float:
    return float(np.quantile(seconds, 0.99, method="inverted_cdf"))
