"""How large the batches of a service may be on each worker: larger ones run out of memory, or kill it."""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from prometheus_client import Counter, Gauge

from uncork_dispatcher.wording import exact, plural
from uncork_gateway.batching import Batching
from uncork_gateway.service_log import ServiceLog


class MemoryLimits:
    """Learns limits from the replies of workers, and sets them in the dispatcher.

    A limit belongs to a place, the index of a worker: the next process there starts with it, unless
    another program has started one of both on another machine. Other code starts without.

    Args:
        counts_cost: returns True for an API that limits cost instead of rows.
    """

    def __init__(self, batching: Batching, log: ServiceLog, counts_cost: Callable[[str], bool]) -> None:
        self._dispatcher = batching.dispatcher
        self._log = log
        self._counts_cost = counts_cost
        self._said: dict[tuple[str, int], float] = {}
        """By API and index, the limits that workers have reported."""
        self._survived: dict[tuple[str, int], float] = {}
        """The limits after batches that have killed workers."""
        self._of_machine: dict[str, float] = {}
        """By API, the smallest limit of all workers that the gateway starts."""
        self._workers: dict[int, int] = {}
        """The key of the worker that was ready last, by index."""
        self._hosts: dict[int, str] = {}
        """The machine of that worker, by index."""
        text = "Most rows in a batch for this worker, or cost, because more did not fit into its memory."
        self._gauge = Gauge("uncork_batch_limit", text, ["api", "worker"], registry=None)
        text = "Calls of handlers that ran out of memory."
        self._failures = Counter("uncork_memory_failures", text, ["api"], registry=None)
        batching.collectors += [self._gauge.collect, self._failures.collect]
        batching.on_removed.append(self._removed)

    def of(self, api: str, index: int) -> float | None:
        """Return the limit that the worker with this index has reported; None without a limit."""
        return self._said.get((api, index))

    def joined(
        self, worker: int, index: int, limits: Mapping[str, float], apis: Collection[str], *, host: str
    ) -> None:
        """Limit the batches of a worker that has become ready; its warm-up has found ``limits``."""
        before = self._workers.get(index, worker)
        if min(before, worker) < 0 and self._hosts.get(index) != host:
            # They only have the number in common.
            for place in [*self._said, *self._survived]:
                if place[1] == index:
                    self._forget(*place)
        self._workers[index], self._hosts[index] = worker, host
        for api in apis:
            if worker > 0 and api in self._of_machine:
                survived = self._survived.get((api, index), math.inf)
                self._survived[api, index] = min(survived, self._of_machine[api])
            self.learn(worker, index, api, limits.get(api, self.of(api, index)))
            self._put_in_force(index, api)

    def stopped(self, index: int) -> None:
        """Note that a worker was stopped for good. The next one that is started there has its limits."""
        self._workers.pop(index, None)
        for api, its_index in [*self._said, *self._survived]:
            if its_index == index:
                self._put_in_force(index, api)

    def learn(self, worker: int, index: int, api: str, limit: float | None, failures: int = 0) -> None:
        """Note the limit in a reply of a worker, and how many calls ran out of memory."""
        if failures:
            self._failures.labels(api).inc(failures)
        known = self.of(api, index)
        if limit == known or self._workers.get(index) != worker:
            return
        if limit is None:
            del self._said[api, index]
        else:
            self._said[api, index] = limit
        self._put_in_force(index, api)
        if limit is not None and (known is None or limit < known):
            self._log.warning(
                "%s: larger batches do not fit into the memory of worker %d; its batches have %s",
                *(api, index, self._at_most(api, limit)),
            )
        elif limit is not None:
            self._log.info("%s: trying batches of %s on worker %d", api, self._at_most(api, limit), index)

    def killed(self, api: str, indexes: Collection[int] | None, size: float) -> None:
        """Note that batches of this size kill workers: half of it is the limit until the code changes.

        It is not raised again: each try would cost workers. Without indexes, the kernel has killed a worker,
        and the limit holds for all workers that the gateway starts, now or later: they share the memory.
        """
        limit = max(1.0, size // 2)
        why = "killed its workers, but each of its requests ran alone, so it probably took too much memory"
        if indexes is None:
            self._of_machine[api] = min(limit, self._of_machine.get(api, math.inf))
            indexes = [index for index, worker in self._workers.items() if worker > 0]
            why = "took too much memory, and the kernel killed its worker"
        for index in indexes:
            if limit >= self._survived.get((api, index), math.inf):
                continue
            self._survived[api, index] = limit
            self._put_in_force(index, api)
            self._log.warning(
                "%s: a batch of size %s %s; batches of worker %d have %s",
                *(api, exact(size), why, index, self._at_most(api, limit)),
            )

    def forget_all(self) -> None:
        """Forget all limits, because the code has changed."""
        self._of_machine.clear()
        for place in [*self._said, *self._survived]:
            self._forget(*place)

    def _removed(self, api: str) -> None:
        """Drop the metrics of a removed API, and what workers of the old code have said of it since."""
        with suppress(KeyError):
            self._failures.remove(api)
        for place in [*self._said, *self._survived]:
            if place[0] == api:
                self._forget(*place)

    def _forget(self, api: str, index: int) -> None:
        for known in (self._said, self._survived):
            known.pop((api, index), None)
        self._put_in_force(index, api)

    def _put_in_force(self, index: int, api: str) -> None:
        limits = [known[api, index] for known in (self._said, self._survived) if (api, index) in known]
        worker = self._workers.get(index)
        if worker is not None:
            self._dispatcher.limit_batches(worker, api, min(limits, default=math.inf))
        if limits and worker is not None:
            self._gauge.labels(api, str(index)).set(min(limits))
        else:
            with suppress(KeyError):
                self._gauge.remove(api, str(index))

    def _at_most(self, api: str, limit: float) -> str:
        return (
            f"a cost of at most {exact(limit)}"
            if self._counts_cost(api)
            else f"at most {plural(exact(limit), 'row')}"
        )
