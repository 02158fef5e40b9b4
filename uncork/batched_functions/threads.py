"""The threads of a plain function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threads:
    """Run the calls of a plain function, of all event loops, each in one of ``count`` threads."""

    def __init__(self, name: str, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run a call and return its result, or raise its exception.

        A call that has begun cannot be stopped: if the task is cancelled, this ends when the call does.
        """
        outcome: list[Any] = []
        submitted = self._executor.submit(_run, call, outcome)
        ended = asyncio.wrap_future(submitted)
        is_cancelled = False
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                is_cancelled = True
                submitted.cancel()  # if it has not begun
        try:
            if is_cancelled:
                raise asyncio.CancelledError
            result, error = outcome
            if error is None:
                return result
            raise error
        finally:
            # Else the traceback refers to the exception.
            outcome.clear()
            error = None


def _run(call: Callable[[], Any], outcome: list[Any]) -> None:
    """Append the result of a call and its exception. A future cannot carry every exception.

    Nor may this return it: the traceback would refer to it by the frame of the caller.
    """
    try:
        outcome += call(), None
    except BaseException as error:
        outcome += None, error
