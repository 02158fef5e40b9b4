"""Polling for changes in another process."""

import asyncio
import time
from collections.abc import Callable
from math import inf


async def comes_true(condition: Callable[[], bool], *, within_s: float = inf, every_s: float = 0.02) -> bool:
    """Wait until the condition holds; return False if it does not in time."""
    gives_up_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > gives_up_s:
            return False
        await asyncio.sleep(every_s)
    return True
