"""Lengths of rows for simulations, and how many rows per second batches of mixed lengths carry."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from uncork_dispatcher.rules import SettingError
from uncork_dispatcher.simulator.service import ServiceTime

Known = Literal["costs", "totals", "bytes", "nothing"]
"""The core's knowledge of the lengths of rows. ``costs``: the cost of each row, which is its length.
``totals``: the total cost of a request, but not its number of rows. ``bytes``: no costs, but body sizes, with
about one byte per unit of length. ``nothing``: only the number of rows."""
LENGTHS = ("lognormal:MEAN:CV", "bimodal:SHORT:LONG:SHARE", "constant:LENGTH")
# Coefficient of variation around each of the two lengths of a bimodal distribution.
_BIMODAL_CV = 0.2
# With more, the mean of any simulated number of lengths differs from the true one.
_MOST_CV = 5.0
_LONGEST = 1e9
# The mean of the longest row in a batch is taken from this many lengths.
_SAMPLED = 4000


@dataclass(frozen=True, slots=True)
class RowLengths:
    """A distribution of lengths: log-normal, or two such distributions mixed.

    Attributes:
        parts: for each distribution, its share of the rows, mean length and coefficient of variation.
    """

    parts: tuple[tuple[float, float, float], ...]

    @property
    def mean(self) -> float:
        return sum(share * mean for share, mean, _ in self.parts)

    def draw(self, random_: random.Random) -> float:
        share, mean, cv = self.parts[0]
        if len(self.parts) > 1 and random_.random() >= share:
            _, mean, cv = self.parts[1]
        if not cv:
            return mean
        variance = math.log1p(cv**2)
        return mean * random_.lognormvariate(-variance / 2, math.sqrt(variance))


def body_bytes(length: float, random_: random.Random) -> int:
    """Draw the bytes of a body with one row of this length."""
    return max(1, round(length * random_.lognormvariate(0, 0.2)))


@lru_cache
def row_lengths(text: str) -> RowLengths:
    """Return the distribution that ``text`` describes, one of :data:`LENGTHS`.

    ``lognormal:64:1`` has mean 64 and coefficient of variation 1 (the median is 45). In
    ``bimodal:16:512:0.1``, a tenth of the rows has a length of about 512 and the others of about 16, each
    with a coefficient of variation of 0.2. ``constant:64`` has equal lengths.

    Raises:
        SettingError: if the text has another form or a number is out of range.
    """
    kind, *given = text.split(":")
    try:
        numbers = [float(number) for number in given]
    except ValueError:
        numbers = []
    match kind, numbers:
        case "lognormal", [mean, cv] if _are_lengths(mean) and 0 <= cv <= _MOST_CV:
            return RowLengths(((1.0, mean, cv),))
        case "bimodal", [short, long, share] if _are_lengths(short, long) and 0 < share < 1:
            return RowLengths(((1 - share, short, _BIMODAL_CV), (share, long, _BIMODAL_CV)))
        case "constant", [length] if _are_lengths(length):
            return RowLengths(((1.0, length, 0.0),))
    raise SettingError(
        "lengths",
        says=f" must be one of {', '.join(LENGTHS)}, with lengths from 1 to {_LONGEST:g}, a CV from 0 to "
        f"{_MOST_CV:g} and a share between 0 and 1; got {text!r}",
    )


def most_in_order(service: ServiceTime, lengths: RowLengths, *, limit: float) -> float:
    """Return the highest throughput of one worker, in rows per second, with batches in order of arrival.

    Compares batches of 1, 2, 4 and so on rows, up to an average total length of ``limit``. If the model
    pads, larger batches may have less throughput, because their longest row is longer.
    """
    full = max(1.0, limit / lengths.mean)
    sizes = [*(2.0**power for power in range(math.ceil(math.log2(full)))), full]
    return max(
        size / max(service.mean(size * _mean_size(lengths, size, service.padding)), service.prepare_s * size)
        for size in sizes
    )


def _mean_size(lengths: RowLengths, rows: float, padding: float) -> float:
    """Return the mean length of a row in a batch of ``rows``, plus the share ``padding`` of its padding."""
    return (1 - padding) * lengths.mean + padding * _mean_longest(lengths, rows)


@lru_cache
def _mean_longest(lengths: RowLengths, rows: float) -> float:
    """Return the mean length of the longest of ``rows`` rows."""
    random_ = random.Random(1)
    sample = sorted(lengths.draw(random_) for _ in range(_SAMPLED))
    # The probability that all rows are among the shortest of the sample.
    shares = [math.pow(count / _SAMPLED, rows) for count in range(_SAMPLED + 1)]
    return sum(length * (to - since) for length, (since, to) in zip(sample, pairwise(shares), strict=True))


def _are_lengths(*lengths: float) -> bool:
    return all(1 <= length <= _LONGEST for length in lengths)
