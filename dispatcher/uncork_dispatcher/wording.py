"""Formats numbers and clauses for texts that people read."""

import math


def plural(count: int | str, one: str, many: str = "") -> str:
    """Return a count with its noun: "1 row", "2 rows". Give ``many`` if the plural does not just add an s."""
    return f"{count} {one if str(count) == '1' else many or f'{one}s'}"


def number(value: float) -> str:
    """Format a measured number with two significant digits, from 100 on with three."""
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
    """Format a setting, given in seconds, as milliseconds."""
    return f"{exact(seconds * 1000)} ms"


def mebibytes(size_bytes: float) -> str:
    size = size_bytes / 2**20
    return f"{size:.0f} MiB" if size >= 100 else f"{size:.3g} MiB"


def percent(share: float) -> str:
    if 0 < share < 0.01:
        return "less than 1 %"
    if 0.99 < share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


def times(factor: float) -> str:
    return f"{factor:.1f} times" if factor < 10 else f"{number(factor)} times"


def are(count: int) -> str:
    return "is" if count == 1 else "are"


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def as_sentence(text: str) -> str:
    """Capitalize a clause and end it with one period."""
    return f"{capitalized(text.rstrip('.'))}."
