"""The hosts of the workers, and which of them are avoided because they have lost a worker."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from itertools import islice

# Seconds that a host is avoided after it lost a worker. If the host itself has died, its other workers are
# lost within this time: their connections break, or the TCP keepalive of a first one has just failed. It is
# short because most workers that are lost died alone, and their hosts are needed.
_AVOIDED_S = 2.0


class Hosts:
    """The host of each healthy worker, and until when each host is avoided.

    Attributes:
        of: the hosts by worker.
        avoided: until when each host is avoided, possibly in the past.
        died_until: until when lost batches are blamed on the death of a host.
    """

    def __init__(self) -> None:
        self.of: dict[int, Hashable] = {}
        self.died_until = -math.inf
        self.avoided: dict[Hashable, float] = {}

    def lost(self, host: Hashable, *, now: float) -> None:
        """Avoid a host that has lost a worker, which is not in :attr:`of` any more."""
        lost_another = self.avoided.get(host, now) > now
        self.avoided[host] = now + _AVOIDED_S
        others = self.of.values()
        if lost_another and others and host not in others:
            self.died_until = now + _AVOIDED_S

    def preferred(self, workers: Iterable[int], most: int, now: float) -> list[int] | None:
        """Return the first ``most`` of ``workers`` whose hosts are not avoided; None if no host is.

        If all hosts are avoided, return all workers of the host that is avoided for the shortest time.
        """
        if not self._end_avoidance(now):
            return None
        # Not a generator expression: mypyc would go through all workers.
        found = list(islice(filter(lambda worker: self._until(worker) == -math.inf, workers), most))
        if not found:
            soonest = min(map(self._until, workers))
            found = [worker for worker in workers if self._until(worker) == soonest]
        return found

    def avoided_until(self, workers: Iterable[int], now: float) -> float:
        """Return until when the hosts of all ``workers`` are avoided; ``now`` if no other host is better."""
        if not self.avoided or not self._end_avoidance(now):
            return now
        until = min(map(self._until, workers))
        return until if any(self._until(worker) < until for worker in self.of) else now

    def _until(self, worker: int) -> float:
        """Return until when the host of a worker is avoided; minus infinity if it is not."""
        return self.avoided.get(self.of[worker], -math.inf)

    def _end_avoidance(self, now: float) -> bool:
        """Forget the hosts that are not avoided any more; return True if others are."""
        self.avoided = {host: until for host, until in self.avoided.items() if until > now}
        return bool(self.avoided)
