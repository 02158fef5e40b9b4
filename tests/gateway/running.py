"""Runs asynchronous tests."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Nothing takes this long; a test that goes wrong should end all the same.
_PATIENCE_S = 10


def run(
    scenario: Coroutine[Any, Any, T],
    *,
    runner: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:
    """Run a test on a new loop; what reaches the loop's exception handler fails it."""
    troubles: list[dict[str, Any]] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        async with asyncio.timeout(_PATIENCE_S) as limit:
            result = await scenario
        assert not limit.expired(), "it hung, and took its being cancelled for something else"
        return result

    result = runner(watched())
    assert not troubles, troubles
    return result


async def turns(count: int = 5) -> None:
    """Let the loop go round some times."""
    for _ in range(count):
        await asyncio.sleep(0)
