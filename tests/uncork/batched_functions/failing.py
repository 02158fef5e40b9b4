"""Batches that fail, and what is left of their items."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Item:
    """An item that a weak reference can point to."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Run a block in which only references keep objects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def kept_of_failed(call: Callable[[Any], Any], count: int) -> list[weakref.ref[Item]]:
    """Call a function that fails with some items at once; return references to the items."""
    items = [Item() for _ in range(count)]
    kept = [weakref.ref(item) for item in items]
    callers = [asyncio.ensure_future(call(item)) for item in items]
    del items
    await asyncio.wait(callers)
    assert all(caller.exception() for caller in callers)
    return kept
