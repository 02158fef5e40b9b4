"""Snapshots of a gateway: its memory, queue and workers."""

from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import psutil

from benchmarks.harness.metrics import read_metrics, sum_of
from uncork_loadtests.servers import BenchError, Server


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A gateway at a time, in seconds since the start of the measured time."""

    at_s: float
    memory_bytes: int
    """Resident memory of the gateway's own process."""
    queue_rows: int
    queue_bytes: int
    workers: frozenset[int]
    """Process ids."""


def take_snapshot(server: Server, *, at_s: float) -> Snapshot:
    """Read the state of a gateway.

    Raises:
        BenchError: if it has ended or does not answer.
    """
    try:
        process = psutil.Process(server.pid)
        memory_bytes = process.memory_info().rss
        workers = frozenset(child.pid for child in process.children())
        metrics = read_metrics(server)
    except (psutil.Error, httpx.HTTPError) as error:
        raise BenchError(f"the gateway does not answer: {error}\n{server.last_words()}") from error
    return Snapshot(
        at_s=at_s,
        memory_bytes=memory_bytes,
        queue_rows=round(sum_of(metrics, "uncork_queue_rows")),
        queue_bytes=round(sum_of(metrics, "uncork_queue_bytes")),
        workers=workers,
    )


def at_times(snapshots: Sequence[Snapshot], times_s: Sequence[float]) -> list[Snapshot]:
    """Return the snapshot nearest to each time; there must be at least one."""
    return [min(snapshots, key=lambda one: abs(one.at_s - time_s)) for time_s in times_s]


def growth(snapshots: Sequence[Snapshot], *, since_s: float) -> float | None:
    """Return the highest memory since a time, by the first since then; None without snapshots."""
    later = [one.memory_bytes for one in snapshots if one.at_s >= since_s]
    return max(later) / later[0] if later else None


def replaced(snapshots: Sequence[Snapshot], *, workers: int) -> int:
    """Return how many workers have replaced others."""
    seen = frozenset[int]().union(*(one.workers for one in snapshots))
    return max(0, len(seen) - workers)
