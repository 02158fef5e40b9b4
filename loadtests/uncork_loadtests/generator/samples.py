"""What was seen of every request, and what follows from it: percentiles, rates, the rule that voids a run.

Times are in seconds from the start of what is measured; the warm-up lies before 0. Latency counts from
the time a request was scheduled for, not from when it was sent: a request that had to wait, for a free
connection or for a generator that fell behind, has waited all the same.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOST = 0
"""Status of a request whose connection broke, or could not be had."""
UNANSWERED = -1
"""Status of a request that had no answer some time after the end."""
SHED = 503
SAMPLE = np.dtype(
    [
        ("scheduled_s", "f8"),
        ("fired_s", "f8"),  # when the generator got to it
        ("sent_s", "f8"),  # later than that if it waited for a connection; NaN: never
        ("done_s", "f8"),  # when its whole answer was there; NaN: never
        ("status", "i4"),
        ("batch_rows", "i4"),  # 0: the answer does not say
        ("held_ms", "f4"),  # NaN: the answer does not say
        ("batch_ms", "f4"),
        ("wrong", "?"),
        ("first_s", "f8"),  # when the first chunk of a streamed answer came; of another, done_s
        ("chunks", "i4"),  # of a streamed answer; 0: not streamed
    ]
)
Samples = NDArray[Any]
"""An array of SAMPLE, in the order in which requests were done with."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
BEYOND = 5
"""A percentile is shown where at least so many requests are slower: p99 needs 500, p99.9 needs 5000."""
_VOID_LAG_S = 0.001
_VOID_SHARE = 0.1


def status_name(status: int) -> str:
    """A status as people read it."""
    return {SHED: "503 (shed)", LOST: "connection lost", UNANSWERED: "no answer"}.get(status, str(status))


class Recorder:
    """Keeps the samples of a run while it is under way."""

    def __init__(self) -> None:
        self._columns = {name: array(_CODES[SAMPLE[name].str[1:]]) for name in SAMPLE.names or ()}
        self._appends = tuple(column.append for column in self._columns.values())

    def __len__(self) -> int:
        return len(self._columns["status"])

    def add(self, *values: float) -> None:
        """Keep one sample: its fields in their order."""
        for append, value in zip(self._appends, values, strict=True):
            append(value)  # type: ignore[arg-type]

    def samples(self, *, first: int = 0) -> Samples:
        """A copy of all samples from number `first` on."""
        found = np.empty(len(self) - first, dtype=SAMPLE)
        for name, column in self._columns.items():
            found[name] = column[first:]
        return found


_CODES = {"f8": "d", "f4": "f", "i4": "i", "b1": "b"}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Percentiles of some times, in milliseconds."""

    count: int
    mean_ms: float
    percentiles_ms: dict[str, float | None]
    """By name, as "99.9"; None where fewer than BEYOND are beyond it."""
    max_ms: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run found. Requests are those scheduled in the measured time."""

    requests: int
    offered_per_s: float
    answered_per_s: float
    """Good answers (2xx) that came within the measured time, per second of it."""
    statuses: dict[int, int]
    """Requests by HTTP status; LOST and UNANSWERED are no answers."""
    latency: Spread | None
    """Of the good answers; None if there were none."""
    first_chunk: Spread | None
    """Of the good answers that were streamed, from the scheduled time to the first chunk; else None."""
    chunk_gap: Spread | None
    """Of the same answers, the mean time from a chunk to the next; None if all had a single chunk."""
    chunks_per_s: float | None
    """Chunks of the same answers, per second of the measured time."""
    chunks_by_answer: float | None
    """Mean over the same answers."""
    in_goal: float | None
    """Share of all requests that had a good answer within the goal; None without a goal."""
    batch_rows_by_answer: float | None
    """Rows in the batch that an answer was in, mean over answers."""
    batch_rows_by_batch: float | None
    """Mean over batches, if every request carries one row."""
    held: Spread | None
    """How long requests were held, as their answers say."""
    batch: Spread | None
    """How long their batches took."""
    rest: Spread | None
    """What is left of the latency: transport, the gateway's own work, waiting for a connection."""
    wrong: int
    """Answers that were not the expected one, over the whole run."""
    lag: Spread | None
    """How late the generator got to requests."""
    waited_for_connection: int
    """Requests that were sent later than the generator got to them: all connections were busy, or new."""

    @property
    def good(self) -> int:
        """Requests with a good answer."""
        return sum(count for status, count in self.statuses.items() if 200 <= status < 300)

    @property
    def shed(self) -> int:
        """Requests refused with 503."""
        return self.statuses.get(SHED, 0)

    @property
    def failed(self) -> int:
        """Requests without any answer."""
        return self.statuses.get(LOST, 0) + self.statuses.get(UNANSWERED, 0)


def measured(samples: Samples, *, seconds: float = inf) -> Samples:
    """Those scheduled within the measured time."""
    due = samples["scheduled_s"]
    return samples[(due >= 0) & (due < seconds)]


def is_good(samples: Samples) -> NDArray[np.bool_]:
    """Which of them have a good answer."""
    found: NDArray[np.bool_] = samples["status"] // 100 == 2
    return found


def latencies_s(samples: Samples) -> NDArray[np.float64]:
    """Of each: seconds from when it was scheduled to its whole answer; NaN without an answer."""
    found: NDArray[np.float64] = samples["done_s"] - samples["scheduled_s"]
    return found


def first_chunks_s(samples: Samples) -> NDArray[np.float64]:
    """Of each: seconds from when it was scheduled to the first chunk of its answer."""
    found: NDArray[np.float64] = samples["first_s"] - samples["scheduled_s"]
    return found


def spread(seconds: NDArray[Any]) -> Spread | None:
    """Sum up times in seconds; None if there are none."""
    if not len(seconds):
        return None
    times_ms = np.asarray(seconds, dtype=np.float64) * 1000
    # Nearest rank, not interpolated: an average of two modes is a latency nobody had.
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
    """Whether so many samples are enough to speak of a percentile."""
    return count * (100 - percentile) / 100 >= BEYOND - 1e-9


def summarise(samples: Samples, *, seconds: float, goal_s: float | None = None) -> Summary:
    """Sum up the samples of a run of which `seconds` were measured."""
    ours = measured(samples, seconds=seconds)
    good = ours[is_good(ours)]
    latency = latencies_s(good)
    streamed = good[good["chunks"] > 0]
    several = streamed[streamed["chunks"] > 1]
    statuses, counts = np.unique(ours["status"], return_counts=True)
    by_answer, by_batch = batch_rows(good["batch_rows"])
    told = good[~np.isnan(good["held_ms"]) & ~np.isnan(good["batch_ms"])]
    held_s, batch_s = told["held_ms"] / 1000, told["batch_ms"] / 1000
    in_time = is_good(samples) & (samples["done_s"] >= 0) & (samples["done_s"] < seconds)
    waited = ours["sent_s"] > ours["fired_s"]
    return Summary(
        requests=len(ours),
        offered_per_s=len(ours) / seconds,
        answered_per_s=int(in_time.sum()) / seconds,
        statuses={int(status): int(count) for status, count in zip(statuses, counts, strict=True)},
        latency=spread(latency),
        first_chunk=spread(first_chunks_s(streamed)),
        chunk_gap=spread((several["done_s"] - several["first_s"]) / (several["chunks"] - 1)),
        chunks_per_s=int(streamed["chunks"].sum()) / seconds if len(streamed) else None,
        chunks_by_answer=float(streamed["chunks"].mean()) if len(streamed) else None,
        in_goal=int((latency <= goal_s).sum()) / len(ours) if goal_s is not None and len(ours) else None,
        batch_rows_by_answer=by_answer,
        batch_rows_by_batch=by_batch,
        held=spread(held_s),
        batch=spread(batch_s),
        rest=spread(latencies_s(told) - held_s - batch_s),
        wrong=int(samples["wrong"].sum()),
        lag=spread(ours["fired_s"] - ours["scheduled_s"]),
        waited_for_connection=int((waited | np.isnan(ours["sent_s"])).sum()),
    )


def batch_rows(rows: NDArray[Any]) -> tuple[float | None, float | None]:
    """From the batch sizes that answers tell: the mean over answers, and the mean over batches.

    A batch of n is seen by n answers, so the mean over answers leans to the large ones.
    """
    told = rows[rows > 0]
    if not len(told):
        return None, None
    return float(told.mean()), float(len(told) / (1 / told).sum())


def void_reason(samples: Samples, *, seconds: float = inf) -> str:
    """Why the measured time says nothing about the server; empty if it does.

    The p99 of the generator's lag may be 1 ms, or a tenth of the p99 of the latency if that is more. Of
    streamed answers, the time to the first chunk counts as their latency.
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
        f"the generator fell behind: the p99 of its lag is {lag_s * 1000:.3g} ms, allowed are "
        f"{allowed_s * 1000:.3g} ms (1 ms, or a tenth of the p99 of the latency)"
    )


def _p99(seconds: NDArray[Any]) -> float:
    return float(np.quantile(seconds, 0.99, method="inverted_cdf"))


NOT_TOLD = nan
"""Stands for times that an answer does not tell."""
