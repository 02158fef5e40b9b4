"""Titles, labels and colours of the pictures of a load test."""

from __future__ import annotations

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.plot_data import PlotData
from uncork_loadtests.reports.style import BLUE, DARK_GREY, GREY, ORANGE, PURPLE, VERMILION

TITLES = {
    "latency": "Latency over time",
    "distribution": "Latency by percentile",
    "throughput": "Offered and answered",
    "statuses": "What became of requests",
    "batch_sizes": "Batch sizes",
    "batch_times": "Batch times and their estimate",
}
"""By picture, in drawing order."""
LABELS = {
    "latency": ("scheduled time in seconds", "latency in milliseconds"),
    "distribution": ("share of requests that are faster", "latency in milliseconds"),
    "throughput": ("time in seconds", "requests per second"),
    "statuses": ("scheduled time in seconds", "requests per second"),
    "batch_sizes": ("rows in a batch", "batches"),
    "batch_times": ("rows in a batch", "batch time in milliseconds"),
}
NOTHING = {
    "latency": "there was no good answer",
    "distribution": "there were too few good answers",
    "batch_sizes": "answers do not say what batch they were in",
    "batch_times": "answers do not say how long their batch took",
}
"""Shown in an empty picture."""
COLOURS = {
    "point": "#9ecae1",
    "p50": BLUE,
    "p99": VERMILION,
    "offered": DARK_GREY,
    "good (2xx)": BLUE,
    "shed (503)": ORANGE,
    "other status": PURPLE,
    "no answer": VERMILION,
    "goal": GREY,
}
# A goal this many times above the highest latency would squash the picture.
_FAR = 10.0


def goal_in_sight_ms(outcome: Outcome, data: PlotData) -> float | None:
    """Return the goal if it is close enough to the latencies to be drawn."""
    if outcome.plan.goal_s is None or not len(data.latency_ms):
        return None
    goal_ms = outcome.plan.goal_s * 1000
    return goal_ms if goal_ms < _FAR * float(data.latency_ms.max()) else None


def goal_label(goal_ms: float) -> str:
    """Return the label of the line at the goal."""
    return f"goal {goal_ms:g} ms"
