"""What a gateway holds at a moment: its memory, its queue, its workers."""

import http.client
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from prometheus_client.parser import text_string_to_metric_families

from uncork_loadtests.servers import BenchError, Server

_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen at a time, in seconds from the start of what is measured."""

    at_s: float
    memory_bytes: int
    """Resident memory of the gateway's own process."""
    queue_rows: int
    queue_bytes: int
    workers: frozenset[int]
    """Process ids."""


def look(server: Server, *, at_s: float) -> Look:
    """Look at a gateway now.

    Raises:
        BenchError: if it has ended, or does not give its metrics.
    """
    try:
        process = psutil.Process(server.pid)
        memory_bytes = process.memory_info().rss
        workers = frozenset(child.pid for child in process.children())
        metrics = read_metrics(server)
    except (psutil.Error, OSError, http.client.HTTPException) as error:
        raise BenchError(f"the gateway cannot be looked at: {error}\n{server.last_words()}") from error
    return Look(
        at_s=at_s,
        memory_bytes=memory_bytes,
        queue_rows=round(sum_of(metrics, "uncork_queue_rows")),
        queue_bytes=round(sum_of(metrics, "uncork_queue_bytes")),
        workers=workers,
    )


def read_metrics(server: Server) -> str:
    """The page of metrics; OSError or HTTPException if it cannot be had."""
    with urllib.request.urlopen(server.admin_url("/metrics"), timeout=_TIMEOUT_S) as page:
        return str(page.read().decode())


def sum_of(metrics: str, name: str, **labels: str) -> float:
    """The sum of all samples of this name that have these labels, in Prometheus' text format."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def at_times(looks: Sequence[Look], times_s: Sequence[float]) -> list[Look]:
    """For each time, what was seen next to it. There must be at least one look."""
    return [min(looks, key=lambda one: abs(one.at_s - time_s)) for time_s in times_s]


def growth(looks: Sequence[Look], *, since_s: float) -> float | None:
    """The most memory from a time on, by that at the first look of it; None without looks."""
    later = [one.memory_bytes for one in looks if one.at_s >= since_s]
    return max(later) / later[0] if later else None


def replaced(looks: Sequence[Look], *, workers: int) -> int:
    """How many workers were put in the place of others."""
    seen = frozenset[int]().union(*(one.workers for one in looks))
    return max(0, len(seen) - workers)
