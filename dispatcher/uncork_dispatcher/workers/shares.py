"""The shares of all APIs: which workers each may use, and which of them gets its next batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import islice

from uncork_dispatcher.workers.hosts import Hosts
from uncork_dispatcher.workers.share import ConcurrentShare, Share

# The next worker is the fastest of this many idle ones. If there are more, one of these is very likely about
# as fast as the fastest of all.
_COMPARED = 16


class Shares:
    """Deals the healthy workers to the APIs.

    A share has the last batch of each worker, except retired ones: no batch can start when they end.

    Args:
        hosts: the hosts of the healthy workers; read-only.
        idle: the idle workers, the longest idle first; read-only.
    """

    def __init__(self, hosts: Hosts, idle: dict[int, None]) -> None:
        self._hosts = hosts
        self._workers = hosts.of
        self._idle = idle
        self.shared = shared = Share(takes=idle)
        """The share of the APIs that have reserved no workers, and have no slots of their own."""
        # Not a method, because busy gateways ask several times for each request.
        self.of: dict[str, Share] = defaultdict(lambda: shared)
        """The share of each API."""
        self.all: list[Share] = [shared]
        """All shares; those with one API come first."""

    def reserve(self, api: str, workers: int, concurrency: int) -> None:
        """Give an API a share; see :meth:`Slots.reserve`. Workers and batches must be dealt again then."""
        self.forget(api)
        if concurrency > 1:
            self.of[api] = ConcurrentShare(concurrency)
        elif workers:
            self.of[api] = Share(workers, takes=self._idle)
        share = self.of[api]
        share.apis[api] = None
        if share is not self.shared:
            self.all.insert(-1, share)

    def forget(self, api: str) -> None:
        share = self.of.pop(api, self.shared)
        share.apis.pop(api, None)
        if share is not self.shared:
            self.all.remove(share)

    def clear(self) -> None:
        """Remove all batches, and all workers from the shares that have slots of their own."""
        for share in self.all:
            share.clear()

    def concurrent(self) -> list[ConcurrentShare]:
        return [share for share in self.all if isinstance(share, ConcurrentShare)]

    def count(self) -> None:
        """Count the workers again, after a change. The last worker is for all APIs."""
        workers = left = len(self._workers)
        for share in self.all:
            if share.reserved:
                share.workers = min(share.reserved, workers)
                left -= share.reserved
        self.shared.workers = min(workers, max(1, left))
        self.count_idle()

    def count_idle(self) -> None:
        idle = len(self._idle)
        for share in self.all:
            # Other APIs do not use the slots of a concurrent API.
            if not isinstance(share, ConcurrentShare):
                share.idle = max(0, min(idle, share.workers - len(share.batches)))

    def next_idle(self, slowdown: Callable[[int], float] | None, now: float, api: str = "") -> int:
        """Return the fastest of the 16 workers that have been idle longest; of equals, the longest idle.

        ``slowdown`` returns the factor on a worker's batch time; None if all are equal. A worker must be
        idle for ``api``. Workers of avoided hosts go last; if all idle workers are on avoided hosts, the host
        that is avoided for the shortest time goes first. If the API has slots of its own, of the 16 workers
        that have waited longest those with the fewest of its batches go first.
        """
        share, first = self.of[api], None
        if self._hosts.avoided:
            first = self._hosts.preferred(share.takes, _COMPARED, now)
        if isinstance(share, ConcurrentShare):
            first = list(islice(share.takes, _COMPARED)) if first is None else first
            fewest = min(map(share.running, first))
            first = [worker for worker in first if share.running(worker) == fewest]
        if first is not None:
            return first[0] if slowdown is None else min(first, key=slowdown)
        if slowdown is not None and len(share.takes) > 1:
            return min(islice(share.takes, _COMPARED), key=slowdown)
        return next(iter(share.takes))

    def avoids_idle_until(self, now: float, api: str = "") -> float:
        """Return until when a lost batch should wait for a worker of another host; ``now`` if it should not.

        The batch waits while all idle workers are on avoided hosts, and a busy worker is on a host that is
        not avoided or is avoided for less time. A worker must be idle for ``api``.
        """
        return self._hosts.avoided_until(self.of[api].takes, now)
