"""The recent past of each API for the charts, in bounded memory, with or without viewers."""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.telemetry.recent import WINDOW_S

SPAN_S = 900.0
"""The age of the oldest points."""
STEP_S = 2.0
"""The time between two points."""
# Each takes 36 kB.
MOST_APIS = 32


class Point(NamedTuple):
    """One point on an API's charts; unknown values are NaN.

    Attributes:
        p50_ms, p95_ms, p99_ms: percentiles of recent latency.
        rate_rows, capacity_rows: rows per second.
        error_share, refused_share: shares of the recent responses.
        queued_rows: rows queued at that time.
        padding_share: the share of padding in the work of the last batches; 0 without padding.
    """

    p50_ms: float
    p95_ms: float
    p99_ms: float
    rate_rows: float
    capacity_rows: float
    error_share: float
    refused_share: float
    queued_rows: float
    padding_share: float


Columns = dict[str, list[float | None]]
"""Points by column, the oldest first: ``age_s`` and the fields of :class:`Point`. JSON has null for NaN."""

_NAMES = ("age_s", *Point._fields)


class History:
    """The points of each API for the last ``span_s`` seconds. APIs beyond ``most_apis`` have none."""

    def __init__(self, *, span_s: float = SPAN_S, step_s: float = STEP_S, most_apis: int = MOST_APIS) -> None:
        self._span_s = span_s
        self._step_s = step_s
        self._size = round(span_s / step_s)
        self._most_apis = most_apis
        self._rings: dict[str, _Ring] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, figures: Callable[[int], Mapping[str, Figures]]) -> None:
        """Add a point per API every ``step_s`` seconds, until :meth:`stop`.

        ``figures`` returns the measurements of at most a given number of APIs, by id.
        """
        self._timer = asyncio.get_running_loop().call_later(self._step_s, self._sample, figures)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self, figures: Callable[[int], Mapping[str, Figures]]) -> None:
        self.start(figures)  # first: an error must not end the sampling
        points = {key: point_of(one) for key, one in figures(self._most_apis).items()}
        self.add(asyncio.get_running_loop().time(), points)

    def add(self, now: float, points: Mapping[str, Point]) -> None:
        """Add the APIs' points at ``now``. Drop the history of any API without a point."""
        self._rings = {name: ring for name, ring in self._rings.items() if name in points}
        for name, point in points.items():
            if name not in self._rings and len(self._rings) < self._most_apis:
                self._rings[name] = _Ring(self._size)
            if name in self._rings:
                self._rings[name].add(now, point)

    def columns(self, now: float, *, most: int | None = None) -> dict[str, Columns]:
        """Return each API's points, at most the latest ``most``; ages are relative to ``now``."""
        return {
            name: ring.columns(now, span_s=self._span_s, most=self._size if most is None else most)
            for name, ring in self._rings.items()
        }


class _Ring:
    """The latest points of one API, in a ring buffer."""

    def __init__(self, size: int) -> None:
        self._rows = np.full((size, len(_NAMES)), np.nan)
        self._added = 0

    def add(self, now: float, point: Point) -> None:
        # Three significant digits are enough for a chart, and shorter to send.
        self._rows[self._added % len(self._rows)] = (now, *(float(f"{value:.3g}") for value in point))
        self._added += 1

    def columns(self, now: float, *, span_s: float, most: int) -> Columns:
        size = len(self._rows)
        kept = min(self._added, size, most)
        rows = self._rows[np.arange(self._added - kept, self._added) % size]
        rows = rows[rows[:, 0] >= now - span_s]
        rows[:, 0] = np.round(now - rows[:, 0], 1)
        return dict(zip(_NAMES, rows.T.tolist(), strict=True))


def point_of(figures: Figures) -> Point:
    """Return an API's point for the charts; its values are as in ``/status``, or NaN if unknown."""
    recent = figures.recent
    duration = recent.counts.duration
    p50, p95, p99 = (
        math.nan if recent.is_few else 1000 * duration.quantile(share) for share in (0.5, 0.95, 0.99)
    )
    # The rate of a few requests is chance, but a chart must show that there were some.
    rate = recent.arrived_rows / max(WINDOW_S, recent.seconds) if recent.is_few else recent.rate
    return Point(
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        rate_rows=rate,
        capacity_rows=math.nan if figures.capacity is None else figures.capacity,
        error_share=recent.error_share if recent.requests else math.nan,
        refused_share=recent.refused_share if recent.requests else math.nan,
        queued_rows=figures.stats.queued_rows,
        padding_share=math.nan if figures.stats.padding is None else figures.stats.padding.share,
    )
