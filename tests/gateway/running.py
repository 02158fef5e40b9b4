"""Helpers of asynchronous tests."""

import asyncio


async def turns(count: int = 5) -> None:
    """Let the loop run some iterations."""
    for _ in range(count):
        await asyncio.sleep(0)
