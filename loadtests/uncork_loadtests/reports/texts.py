"""Titles, labels and colours that the page and the PNG of a load test have in common."""

from __future__ import annotations

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.plot_data import Figures
from uncork_loadtests.reports.style import BLUE, DARK_GREY, GREY, ORANGE, PURPLE, VERMILION

TITLES = {
    "latency": "Latency over time",
    "distribution": "Latency by percentile",
    "throughput": "Offered and answered",
    "statuses": "What became of requests",
    "batch_sizes": "Batch sizes",
    "batch_times": "Batch times and their estimate",
}
"""By the name of the picture, in the order in which they are drawn."""
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
"""In place of a picture that there is nothing to draw in."""
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
# A goal further away than that would squeeze what there is to see.
_FAR = 10.0


def goal_in_sight_ms(outcome: Outcome, shown: Figures) -> float | None:
    """The goal, if there is one that is near enough to the latencies to be drawn with them."""
    if outcome.plan.goal_s is None or not len(shown.latency_ms):
        return None
    goal_ms = outcome.plan.goal_s * 1000
    return goal_ms if goal_ms < _FAR * float(shown.latency_ms.max()) else None


def goal_label(goal_ms: float) -> str:
    """What the line at the goal is called."""
    return f"goal {goal_ms:g} ms"
