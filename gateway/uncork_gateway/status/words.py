"""Numbers and names as people read them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """What users of a front end call its parts and settings.

    Attributes:
        worker: what runs a batch.
        add: how to have more of them.
        api: what they ask for.
        cap, cap_bytes, goal, window: the settings for the largest batch in rows and in bytes, the goal, and
            the longest time that a request is held while something could run it; None where there is none.
    """

    worker: str
    workers: str
    add: str
    api: str
    cap: str
    cap_bytes: str | None
    goal: str
    window: str | None


SERVICE = Names(
    worker="worker",
    workers="workers",
    add="--workers",
    api="api",
    cap="mb_max_batch_size",
    cap_bytes="mb_max_batch_bytes",
    goal="mb_max_latency",
    window=None,
)
PROXY = Names(
    worker="call at a time",
    workers="calls at a time",
    add="another server, or a higher --concurrency",
    api="model",
    cap="--max-batch-size",
    cap_bytes=None,
    goal="--goal-ms",
    window="--max-latency",
)


def number(value: float) -> str:
    """Three digits, or all that are before the point."""
    if not math.isfinite(value):
        return "any number"
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.4f}"


def ms(seconds: float) -> str:
    """A time in milliseconds, as settings and metrics have it; longer ones in seconds."""
    if not math.isfinite(seconds):
        return "any time"
    if seconds >= 10:
        return f"{number(seconds)} s"
    return f"{number(round(seconds * 1000, 3))} ms"


def percent(share: float) -> str:
    """A share of a whole."""
    if 0 < share < 0.01:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def count(value: float, one: str, many: str | None = None) -> str:
    """A number of things."""
    text = number(value)
    return f"{text} {one if text == '1' else many or one + 's'}"


def times(factor: float) -> str:
    """A ratio."""
    return f"{factor:.1f} times" if factor < 10 else f"{number(round(factor))} times"
