"""Numbers and names as people read them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """What users of a front end call its parts and settings.

    Attributes:
        worker, workers: what runs batches.
        free: one that could start now.
        one_busy, all_busy: that there is none, of one and of ``{n}``.
        handler: what makes the answers; ``log``: where it says more.
        lost: what is lost when the way to it breaks.
        add: how to have more of them.
        api: what they ask for.
        cap, cap_bytes, goal, window: the settings for the largest batch in rows and in bytes, the goal, and
            the longest time that the policy may hold a request; None where there is none.
    """

    worker: str
    workers: str
    free: str
    one_busy: str
    all_busy: str
    handler: str
    log: str
    lost: str
    add: str
    api: str
    cap: str
    cap_bytes: str | None
    goal: str
    window: str | None


SERVICE = Names(
    worker="worker",
    workers="workers",
    free="an idle worker",
    one_busy="the only worker is busy",
    all_busy="all {n} workers are busy",
    handler="the handler",
    log="the log",
    lost="a worker",
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
    free="room for one more call",
    one_busy="the only call that may run at a time is running",
    all_busy="all {n} calls that may run at a time are running",
    handler="the model server",
    log="the model server's log",
    lost="the connection to a server",
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
    value += 0.0  # -0.0 is 0
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
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def count(value: float, one: str, many: str | None = None) -> str:
    """A number of things."""
    text = number(value)
    return f"{text} {one if text == '1' else many or one + 's'}"


def were(number_of: int) -> str:
    """The verb for so many things."""
    return "was" if number_of == 1 else "were"


def plus_minus(share: float) -> str:
    """A relative deviation."""
    return f"±{max(1.0, 100 * share):.0f} %"


def times(factor: float) -> str:
    """A ratio."""
    return f"{factor:.1f} times" if factor < 10 else f"{number(round(factor))} times"
