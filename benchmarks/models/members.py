"""`uncork`, except that another rule chooses the requests that share a batch.

A benchmark compares the dispatcher's rule with others. This module replaces the rule in the gateway's
process; everything else stays the same.

    python -m benchmarks.models.members fifo serve service.py:Service --policy fixed:0
"""

import contextlib
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import numpy as np

from uncork.cli.app import main
from uncork_dispatcher import CORE_IS_COMPILED
from uncork_dispatcher.api import Api
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.lengths import Lengths
from uncork_dispatcher.requests.queue import RequestQueue

Rule = Callable[[Api, RequestQueue, float], Lengths]
"""Returns the lengths that may share the next batch, of an API, its queue and the limit of a batch."""
Divide = Callable[[Sequence[float], float, float], list[int]]
"""Divides ascending lengths into batches: returns where each begins, and the number of lengths.

Its other arguments are the limit of a batch, and the fixed time of a batch in units of length.
"""


@contextlib.contextmanager
def by_sum() -> Iterator[None]:
    """Hide the lengths of rows from the dispatcher: it knows the cost of requests only."""
    submit = Dispatcher.submit

    def without_lengths(
        core: Dispatcher,
        request: int,
        *,
        count: Hashable = None,
        longest: Hashable = None,
        size_bytes: int = 0,
        **more: Any,
    ) -> Any:
        # Nor the bytes of the bodies, which would serve as lengths.
        return submit(core, request, **more)

    with patch.object(Dispatcher, "submit", without_lengths):
        yield


def in_order(api: Api, queue: RequestQueue, limit: float) -> Lengths:
    """Let the most urgent requests share a batch, whatever their lengths."""
    return Lengths(0.0, math.inf)


def by_bucket(api: Api, queue: RequestQueue, limit: float) -> Lengths:
    """Let the most urgent request share a batch with others of its bucket.

    A bucket has the lengths above half of a power of two, up to the power.
    """
    end = 2.0 ** math.ceil(math.log2(queue.most_urgent.length))
    return Lengths(math.nextafter(end / 2, math.inf), end)


def by_budget(lengths: Sequence[float], limit: float, fixed: float) -> list[int]:
    """Fill each batch up to the limit."""
    begins = [0]
    for at, length in enumerate(lengths):
        if at > begins[-1] and (at + 1 - begins[-1]) * length > limit:
            begins.append(at)
    return [*begins, len(lengths)]


def razors_edge(lengths: Sequence[float], limit: float, fixed: float) -> list[int]:
    """Find the batches that take least time in all, by dynamic programming."""
    least, begins = np.zeros(len(lengths) + 1), [0]
    for end, length in enumerate(lengths, 1):
        sizes = length * np.arange(end, 0, -1)
        times = np.where(sizes <= max(limit, length), least[:end] + fixed + sizes, math.inf)
        begins.append(int(times.argmin()))
        least[end] = times[begins[-1]]
    found = [len(lengths)]
    while found[-1]:
        found.append(begins[found[-1]])
    return found[::-1]


def in_parts(divide: Divide, *, minmax: bool = False) -> Rule:
    """Divide the 256 most urgent requests, sorted by length; let the part of the most urgent share a batch.

    With ``minmax``, it is the part in which a request would have the highest latency.
    """

    def choose(api: Api, queue: RequestQueue, limit: float) -> Lengths:
        fixed_s, unit_s = api.model.measures.estimate[:2]
        fixed = fixed_s / unit_s if unit_s else math.inf
        urgent = list(islice(queue.turns(), 256))
        ordered = sorted(urgent, key=attrgetter("length"))
        begins = divide([entry.length for entry in ordered], limit, fixed)
        parts = [ordered[begin:end] for begin, end in pairwise(begins)]
        chosen = next(part for part in parts if urgent[0] in part)
        if minmax:
            chosen = max(
                parts,
                key=lambda part: unit_s * len(part) * part[-1].length - min(entry.arrival for entry in part),
            )
        return Lengths(chosen[0].length, chosen[-1].length)

    return choose


@contextlib.contextmanager
def _choosing(choose: Rule) -> Iterator[None]:
    """Replace the rule of the dispatcher."""

    def mixable(api: Api, queue: RequestQueue, sample: object, limit: float, most_rows: float) -> Lengths:
        return choose(api, queue, limit)

    with patch.object(Api, "_mixable", mixable):
        yield


MEMBERS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "rule": contextlib.nullcontext,
    "sum": by_sum,
    "fifo": partial(_choosing, in_order),
    "buckets": partial(_choosing, by_bucket),
    "sorted": partial(_choosing, in_parts(by_budget)),
    "razor": partial(_choosing, in_parts(razors_edge)),
    "razor-minmax": partial(_choosing, in_parts(razors_edge, minmax=True)),
}
"""Choices of members by name."""

if __name__ == "__main__":
    if CORE_IS_COMPILED:
        raise SystemExit(
            f"{__file__}: the rule can be replaced only if the core of the dispatcher is not compiled"
        )
    with MEMBERS[sys.argv.pop(1)]():
        main()
