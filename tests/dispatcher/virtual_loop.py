"""An asyncio event loop on virtual time: whoever sleeps wakes at once, and the clock has moved on.

For code that waits only for futures and timers; sockets and threads would need the real clock.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _VirtualSelector(selectors.SelectSelector):
    """Never waits: when nothing is ready it adds what it was asked to wait to its clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: everybody waits, and no timer is set")
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector event loop whose clock stands still while anything can run, and else jumps."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], VirtualLoop] = VirtualLoop) -> T:
    """Run ``main`` on a virtual loop; fails on whatever the loop would only have logged."""
    problems: list[str] = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: problems.append(repr(context)))
        try:
            result = runner.run(main)
        except BaseException as error:
            error.add_note(f"logged by the loop: {problems}")
            raise
        gc.collect(1)  # a task that died unseen is reported when it is collected
    if problems:
        raise AssertionError(f"logged by the loop: {problems}")
    return result
