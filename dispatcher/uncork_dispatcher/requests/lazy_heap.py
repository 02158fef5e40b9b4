"""A heap that can remove any of its entries."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyHeap(Generic[T]):
    """The members of a mapping, each with a time, the earliest first.

    To remove a member, remove it from the mapping; the heap drops it later. A removed key must not return to
    the mapping before :meth:`top` has dropped it.
    """

    def __init__(self, members: Mapping[int, T], times: Iterable[tuple[float, int]] = ()) -> None:
        self._members = members
        self._times = list(times)
        heapq.heapify(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def push(self, at: float, key: int) -> None:
        """Add the mapping's member ``key``, with the time ``at``."""
        if len(self._times) > 2 * len(self._members) + 64:
            self._times = [each for each in self._times if each[1] in self._members]
            heapq.heapify(self._times)
        heapq.heappush(self._times, (at, key))

    def top(self) -> T | None:
        """Return the member with the earliest time; None if there is none."""
        while self._times:
            member = self._members.get(self._times[0][1])
            if member is not None:
                return member
            heapq.heappop(self._times)
        return None

    def ascending(self) -> Iterator[T]:
        """Iterate over the members, the earliest first; the heap must not change meanwhile.

        The first ``k`` members take ``k log k`` steps, however many there are.
        """
        times = self._times
        reached = [(times[0], 0)] if times else []
        while reached:
            (_, key), place = heapq.heappop(reached)
            for below in (2 * place + 1, 2 * place + 2):
                if below < len(times):
                    heapq.heappush(reached, (times[below], below))
            member = self._members.get(key)
            if member is not None:
                yield member
