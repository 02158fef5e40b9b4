"""Titles, labels and colours that the page and the PNG of a load test have in common."""

from __future__ import annotations

from uncork_loadtests.figures import Figures

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
# In place of a picture that there is nothing to draw in.
NO_GOOD_ANSWER = "there was no good answer"
TOO_FEW = "there were too few good answers"
NO_BATCH_SIZE = "answers do not say what batch they were in"
NO_BATCH_TIME = "answers do not say how long their batch took"
# Okabe and Ito's colours, which stay apart for the colour-blind.
COLOURS = {
    "point": "#9ecae1",
    "p50": "#0072b2",
    "p99": "#d55e00",
    "offered": "#4d4d4d",
    "good (2xx)": "#0072b2",
    "shed (503)": "#e69f00",
    "other status": "#cc79a7",
    "no answer": "#d55e00",
}
# A goal further away than that would squeeze what there is to see.
_FAR = 10.0


def is_in_sight(goal_ms: float, shown: Figures) -> bool:
    """Whether the goal is near enough to the latencies to be drawn with them."""
    return bool(len(shown.latency_ms)) and goal_ms < _FAR * float(shown.latency_ms.max())
