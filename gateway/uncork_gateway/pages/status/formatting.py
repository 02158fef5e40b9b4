"""Numbers and names in sentences for people."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The names of a front end's parts and settings.

    Attributes:
        worker, workers: a backend that runs batches.
        free: an idle one.
        one_busy, all_busy: clauses for the case that the only one, or all ``{n}``, are busy.
        handler: the code that answers; ``log``: the log with its errors.
        lost: the part that is lost with a batch.
        add: the way to add workers.
        api: the unit that clients call.
        cap, cap_bytes, goal, window: the settings for the largest batch in rows and in bytes, the goal, and
            the longest hold; None if there is no such setting.
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
    """Format a number with three digits, or with all before the decimal point."""
    if not math.isfinite(value):
        return "any number"
    value += 0.0  # -0.0 is 0
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.4f}"


def ms(seconds: float) -> str:
    """Format a time in milliseconds, from 10 s on in seconds."""
    if not math.isfinite(seconds):
        return "any time"
    if seconds >= 10:
        return f"{number(seconds)} s"
    return f"{number(round(seconds * 1000, 3))} ms"


def percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def count(value: float, one: str, many: str | None = None) -> str:
    """Format a number, which may be fractional, with its noun."""
    text = number(value)
    return f"{text} {one if text == '1' else many or one + 's'}"


def are(number_of: int) -> str:
    return "is" if number_of == 1 else "are"


def were(number_of: int) -> str:
    return "was" if number_of == 1 else "were"


def plus_minus(share: float) -> str:
    return f"±{max(1.0, 100 * share):.0f} %"


def times(factor: float) -> str:
    return f"{factor:.1f} times" if factor < 10 else f"{number(round(factor))} times"
