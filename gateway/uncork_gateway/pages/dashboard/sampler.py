"""Samples the APIs for the dashboard's history, with or without viewers."""

import asyncio
import math
from collections.abc import Callable, Mapping

from uncork_gateway.pages.dashboard.history import MOST_APIS, STEP_S, History, Point
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.telemetry.recent import WINDOW_S


class Sampler:
    """Adds a point per API to a history every ``step_s`` seconds, from start to stop.

    ``figures`` returns the measurements of at most a given number of APIs, by id.
    """

    def __init__(
        self, figures: Callable[[int], Mapping[str, Figures]], history: History, *, step_s: float = STEP_S
    ) -> None:
        self._figures = figures
        self._history = history
        self._step_s = step_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._step_s, self._on_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def sample(self) -> None:
        """Add a point for each API."""
        points = {key: point_of(one) for key, one in self._figures(MOST_APIS).items()}
        self._history.add(asyncio.get_running_loop().time(), points)

    def _on_timer(self) -> None:
        # First the timer: an error must not end the sampling.
        self.start()
        self.sample()


def point_of(figures: Figures) -> Point:
    """Return an API's point for the charts; its values are those of ``/status``, NaN if unknown."""
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
