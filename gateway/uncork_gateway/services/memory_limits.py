"""How large the batches of a service may be on each worker, where larger ones run out of memory."""

import math
from collections.abc import Callable, Collection, Mapping

from prometheus_client import Counter, Gauge

from uncork_dispatcher.wording import exact
from uncork_gateway.batching import Batching
from uncork_gateway.service_log import ServiceLog


class MemoryLimits:
    """Learns limits from the replies of workers, and sets them in the dispatcher.

    A limit belongs to a place, the index of a worker: the next process there starts with it. Other code
    starts without.

    Args:
        counts_cost: returns True for an API that limits cost instead of rows.
    """

    def __init__(self, batching: Batching, log: ServiceLog, counts_cost: Callable[[str], bool]) -> None:
        self._dispatcher = batching.dispatcher
        self._log = log
        self._counts_cost = counts_cost
        self._known: dict[tuple[str, int], float] = {}
        text = "Most rows in a batch for this worker, or cost, because more did not fit into its memory."
        self._gauge = Gauge("uncork_batch_limit", text, ["api", "worker"], registry=None)
        text = "Calls of handlers that ran out of memory."
        self._failures = Counter("uncork_memory_failures", text, ["api"], registry=None)
        batching.collectors += [self._gauge, self._failures]

    def of(self, api: str, index: int) -> float | None:
        """Return the limit of an API on the worker with this index; None if there is none."""
        return self._known.get((api, index))

    def is_ready(self, worker: int, index: int, limits: Mapping[str, float], apis: Collection[str]) -> None:
        """Limit the batches of a worker that has become ready; ``limits`` are what its warm-up found."""
        for api in apis:
            limit = limits.get(api, self.of(api, index))
            if limit is not None:
                self.learn(worker, index, api, limit)
                self._dispatcher.limit_batches(worker, api, limit)

    def learn(self, worker: int, index: int, api: str, limit: float | None, failures: int = 0) -> None:
        """Note the limit in a reply of a worker, and how many calls ran out of memory."""
        if failures:
            self._failures.labels(api).inc(failures)
        known = self.of(api, index)
        if limit == known or not self._dispatcher.limit_batches(worker, api, limit or math.inf):
            return
        if limit is None:
            self._forget(api, index)
            return
        self._known[api, index] = limit
        self._gauge.labels(api, str(index)).set(limit)
        unit = "a cost of at most" if self._counts_cost(api) else "at most"
        rows = "" if self._counts_cost(api) else " rows"
        if known is None or limit < known:
            self._log.warning(
                "%s: larger batches do not fit into the memory of worker %d; its batches have %s %s%s",
                *(api, index, unit, exact(limit), rows),
            )
        else:
            self._log.info(
                "%s: trying batches of %s %s%s on worker %d", *(api, unit, exact(limit), rows, index)
            )

    def forget_all(self) -> None:
        """Forget all limits, because the code has changed."""
        for api, index in list(self._known):
            self._forget(api, index)

    def _forget(self, api: str, index: int) -> None:
        del self._known[api, index]
        self._gauge.remove(api, str(index))
