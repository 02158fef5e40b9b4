"""`uncork`, except that another rule chooses the requests that share a batch.

A benchmark compares the dispatcher's rule with others. This module replaces the rule in the gateway's
process; everything else stays the same.

    python -m benchmarks.models.members fifo serve service.py:Service --policy fixed:0
"""

import contextlib
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import uncork_dispatcher.api
from uncork.cli.app import main
from uncork_dispatcher import CORE_IS_COMPILED
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.lengths import Lengths
from uncork_dispatcher.requests.queue import Entry


@contextlib.contextmanager
def by_the_rule() -> Iterator[None]:
    """Change nothing."""
    yield


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Let the most urgent requests share a batch, whatever their lengths."""
    with _choosing(lambda first: Lengths(0.0, math.inf)):
        yield


@contextlib.contextmanager
def by_bucket() -> Iterator[None]:
    """Let the most urgent request share a batch with those of its bucket; each ends at a power of two."""
    with _choosing(lambda first: bucket(first.length)):
        yield


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


def bucket(length: float) -> Lengths:
    """Return the lengths of a bucket: above half of a power of two, up to the power."""
    end = 2.0 ** math.ceil(math.log2(length))
    return Lengths(math.nextafter(end / 2, math.inf), end)


@contextlib.contextmanager
def _choosing(lengths: Callable[[Entry], Lengths]) -> Iterator[None]:
    """Replace the rule by a function of the most urgent request."""

    def choose(sample: Sequence[Entry], **_: object) -> Lengths:
        return lengths(sample[0])

    with patch.object(uncork_dispatcher.api, "mixable_lengths", choose):
        yield


MEMBERS = {"rule": by_the_rule, "sum": by_sum, "fifo": in_order, "buckets": by_bucket}
"""Choices of members by name."""

if __name__ == "__main__":
    if CORE_IS_COMPILED:
        raise SystemExit(
            f"{__file__}: the rule can be replaced only if the core of the dispatcher is not compiled"
        )
    with MEMBERS[sys.argv.pop(1)]():
        main()
