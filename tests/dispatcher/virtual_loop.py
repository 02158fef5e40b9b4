"""An asyncio event loop on virtual time: sleeping takes no time, it only advances the clock.

For code that waits only for futures and timers; sockets and threads need the real clock.
"""

from __future__ import annotations

import selectors
from typing import Any, NoReturn

from tests.loops import CheckedLoop


class _VirtualSelector(selectors.SelectSelector):
    """Advances its clock instead of waiting. Takes no sockets: they may be slower than this clock."""

    now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():  # the first is the loop's own, which wakes it up
            raise RuntimeError("a loop on virtual time takes no sockets")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Without sockets and threads, nothing can be ready.
        if timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(CheckedLoop):
    """A loop whose clock stands still while anything can run and then jumps to the next timer."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, *arguments: object) -> NoReturn:
        raise RuntimeError("a loop on virtual time takes no threads")
