"""A service whose apis do what the end-to-end tests need to see."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import Json, NdArray


class Probe(Service):
    """Keeps what it has seen."""

    def setup(self) -> None:
        """Start with nothing seen."""
        self.seen: list[Any] = []

    @api(input=NdArray(shape=(2,)), mb_max_latency=60_000)
    def add(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Add the two numbers of each row, slowly enough that requests gather."""
        time.sleep(0.005)
        sums: np.ndarray[Any, Any] = rows.sum(axis=1)
        return sums

    @api(input=Json(), mb_max_latency=60_000)
    def remember(self, items: list[Any]) -> list[Any]:
        """Return each item, and remember it."""
        self.seen += items
        return items

    @api(input=Json())
    def recall(self, items: list[Any]) -> list[Any]:
        """Return everything that was remembered."""
        return [self.seen] * len(items)

    @api(input=Json(), mb_max_latency=10)
    def hasty(self, items: list[Any]) -> list[Any]:
        """Return each item."""
        return items

    @api(input=Json(), mb_max_latency=60_000)
    def sleep(self, items: list[float]) -> list[int]:
        """Sleep for the longest of the given seconds; return the process id."""
        time.sleep(max(items))
        return [os.getpid()] * len(items)

    @api(input=Json(), timeout=0.5, mb_max_latency=60_000)
    def hang(self, items: list[float]) -> list[int]:
        """Sleep like ``sleep``, under a timeout of half a second."""
        time.sleep(max(items))
        return [os.getpid()] * len(items)

    @api(input=Json())
    def fail(self, items: list[Any]) -> list[Any]:
        """Raise."""
        raise RuntimeError("secret detail")

    @api(input=Json(), cost="text", mb_max_batch_size=100, mb_max_latency=60_000)
    def weigh(self, items: list[dict[str, str]]) -> list[list[int]]:
        """Return the length of each item's text, and how long all texts of the call are together."""
        time.sleep(0.005)
        lengths = [len(item["text"]) for item in items]
        return [[length, sum(lengths)] for length in lengths]

    @api(input=Json(), idempotent=False, mb_max_latency=60_000)
    def sleep_once(self, items: list[float]) -> list[int]:
        """Sleep like ``sleep``; must not be run twice."""
        time.sleep(max(items))
        return [os.getpid()] * len(items)


class NoSetup(Service):
    """A service that cannot be set up."""

    def setup(self) -> None:
        """Raise."""
        raise RuntimeError("no weights here")

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        """Return the items."""
        return items


class Warm(Service):
    """A service that gives an example."""

    @api(input=Json(), warmup={"a": 1})
    def echo(self, items: list[Any]) -> list[Any]:
        """Return the items after 5 ms."""
        time.sleep(0.005)
        return items


class Fragile(Service):
    """Takes a while to start."""

    def setup(self) -> None:
        """Take a second."""
        time.sleep(1.0)

    @api(input=Json(), mb_max_latency=10_000)
    def echo(self, rows: list[str]) -> list[str]:
        """Return the rows, or exit."""
        if "kill" in rows:
            os._exit(1)
        return rows
