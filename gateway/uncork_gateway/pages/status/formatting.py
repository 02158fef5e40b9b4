"""Numbers and names in sentences for people."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The names of a front end's parts and settings.

    Attributes:
        worker, workers: what runs one batch at a time.
        one_busy, all_busy: the clause for the case that the only one, or ``{all}``, are busy.
        ready: the state of one that can run a batch.
        none_busy: the clause for the case that none was; ``none_ready``: that none could run a batch.
        until_ready: the advice for as long as none can.
        handler: the code that answers; ``log``: the log with its errors.
        lost: the clause for a batch that was lost.
        add: the advice to add ``{workers}``; ``add_any``: the same without a number.
        time: what APIs share; ``apis``: what clients call.
        noise: the advice about batch times that vary.
        cap, cap_bytes, cost, goal, timeout, window: the settings for the largest batch in rows and in bytes,
            the cost of a row, the goal, the longest batch and the longest hold; None if there is no such
            setting.
    """

    worker: str
    workers: str
    one_busy: str
    all_busy: str
    ready: str
    none_busy: str
    none_ready: str
    until_ready: str
    handler: str
    log: str
    lost: str
    add: str
    add_any: str
    time: str
    apis: str
    noise: str
    cap: str
    cap_bytes: str | None
    cost: str | None
    goal: str
    timeout: str
    window: str | None


SERVICE = Names(
    worker="worker",
    workers="workers",
    one_busy="The only worker is busy",
    all_busy="{all} workers are busy",
    ready="ready",
    none_busy="no worker was busy",
    none_ready="no worker was ready",
    until_ready="No request can be answered until a worker is ready. The log has the details.",
    handler="the handler",
    log="the log",
    lost="the worker died while running the batch",
    add="Add {workers} (--workers).",
    add_any="or add workers (--workers)",
    time="the workers' time",
    apis="APIs",
    noise="Look for other load on this machine.",
    cap="mb_max_batch_size",
    cap_bytes="mb_max_batch_bytes",
    cost="cost",
    goal="mb_max_latency",
    timeout="the API's timeout",
    window=None,
)
PROXY = Names(
    worker="concurrent call",
    workers="concurrent calls",
    one_busy="The only allowed call is in progress",
    all_busy="{all} allowed calls are in progress",
    ready="possible",
    none_busy="no call was running",
    none_ready="no server was healthy",
    until_ready="No request can be answered until a server is healthy. Check the model server.",
    handler="the model server",
    log="the model server's log",
    lost="the connection to the model server was lost",
    add="Add {workers}: raise --concurrency, or add a server.",
    add_any="raise --concurrency, or add a server",
    time="the time of the concurrent calls",
    apis="models",
    noise="Look for other load on the model server's machine, or for rows that take far longer than others.",
    cap="--max-batch-size",
    cap_bytes=None,
    cost=None,
    goal="--goal-ms",
    timeout="--timeout",
    window="--max-latency",
)


def number(value: float) -> str:
    """Format a measured number: with two significant digits, or three from 100 on."""
    if not math.isfinite(value):
        return "any number"
    value = float(f"{value:.12g}")  # without noise, which would round 12.5 up or down
    rounded = float(f"{value:.{3 if abs(value) >= 99.5 else 2}g}")
    if abs(rounded) >= 10:
        return f"{rounded:,.0f}"
    return f"{rounded:.2g}" if abs(rounded) >= 0.001 else "0"


def exact(value: float) -> str:
    """Format a count or a setting with all its digits, up to three after the decimal point."""
    if not math.isfinite(value):
        return "any number"
    rounded = round(value, 3)
    return f"{rounded:,.0f}" if rounded == math.floor(rounded) else f"{rounded:,.12g}"


def ms(seconds: float) -> str:
    """Format a measured time in milliseconds; in seconds from 10 s on, in microseconds below 0.1 ms."""
    if not math.isfinite(seconds):
        return "any time"
    if seconds >= 10:
        return f"{number(seconds)} s"
    return f"{number(seconds * 1e6)} µs" if 0 < seconds < 1e-4 else f"{number(seconds * 1e3)} ms"


def exact_ms(seconds: float) -> str:
    """Format a setting in milliseconds."""
    return f"{exact(seconds * 1000)} ms"


def mebibytes(size: int) -> str:
    """Format a size, which is a setting."""
    return f"{exact(size / 2**20)} MiB"


def percent(share: float) -> str:
    if 0 < share < 0.01:
        return "less than 1 %"
    if 0.99 < share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


def plus_minus(share: float) -> str:
    return f"±{max(1.0, 100 * share):.0f} %"


def times(factor: float) -> str:
    return f"{factor:.1f} times" if factor < 10 else f"{number(factor)} times"


def count(value: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun, ``many`` if the plural is not formed with an s."""
    return with_noun(exact(value), one, many)


def with_noun(text: str, one: str, many: str | None = None) -> str:
    """Append the noun to a formatted number."""
    return f"{text} {one if text == '1' else many or one + 's'}"


def are(number_of: int) -> str:
    return "is" if number_of == 1 else "are"


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def as_sentence(text: str) -> str:
    """Return a clause as a sentence. A quoted message may already end with a period."""
    return f"{capitalized(text.rstrip('.'))}."
