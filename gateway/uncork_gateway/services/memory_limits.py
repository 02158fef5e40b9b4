"""How large the batches of a service may be on each worker: larger ones run out of memory, or kill it."""

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Counter, Gauge

from uncork_dispatcher import Batch, BatchStatus
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.wording import exact, plural
from uncork_gateway.batching import Batching
from uncork_gateway.service_log import ServiceLog

# Of batches whose requests leave before they are answered, nothing is learned. So many are remembered, and so
# many of the workers that were lost or killed last.
_REMEMBERED = 16


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
        self._said: dict[tuple[str, int], float] = {}
        """By API and index, the limits that workers have reported."""
        self._survived: dict[tuple[str, int], float] = {}
        """The limits after batches that have killed workers."""
        self._workers: dict[int, int] = {}
        """The key of the worker that was ready last, by index."""
        text = "Most rows in a batch for this worker, or cost, because more did not fit into its memory."
        self._gauge = Gauge("uncork_batch_limit", text, ["api", "worker"], registry=None)
        text = "Calls of handlers that ran out of memory."
        self._failures = Counter("uncork_memory_failures", text, ["api"], registry=None)
        batching.collectors += [self._gauge, self._failures]

    def of(self, api: str, index: int) -> float | None:
        """Return the limit that the worker with this index has reported; None without a limit."""
        return self._said.get((api, index))

    def joined(self, worker: int, index: int, limits: Mapping[str, float], apis: Collection[str]) -> None:
        """Limit the batches of a worker that has become ready; its warm-up has found ``limits``."""
        self._workers[index] = worker
        for api in apis:
            self.learn(worker, index, api, limits.get(api, self.of(api, index)))
            self._put_in_force(worker, index, api)

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
        self._put_in_force(worker, index, api)
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
        and the limit is that of all workers that the gateway has started: they share the memory.
        """
        limit = max(1.0, size // 2)
        why = "killed its workers, but each of its requests ran alone, so it probably took too much memory"
        if indexes is None:
            indexes = [index for index, worker in self._workers.items() if worker > 0]
            why = "took too much memory, and the kernel killed its worker"
        for index in indexes:
            if limit >= self._survived.get((api, index), math.inf):
                continue
            self._survived[api, index] = limit
            self._put_in_force(self._workers.get(index, -1), index, api)
            self._log.warning(
                "%s: a batch of size %s %s; batches of worker %d have %s",
                *(api, exact(size), why, index, self._at_most(api, limit)),
            )

    def forget_all(self) -> None:
        """Forget all limits, because the code has changed."""
        for api, index in {**self._said, **self._survived}:
            self._gauge.remove(api, str(index))
        self._said.clear()
        self._survived.clear()
        self._workers.clear()

    def _put_in_force(self, worker: int, index: int, api: str) -> None:
        limits = [known[api, index] for known in (self._said, self._survived) if (api, index) in known]
        self._dispatcher.limit_batches(worker, api, min(limits, default=math.inf))
        if limits:
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


@dataclass(slots=True, eq=False)
class _Case:
    """A batch of several requests that was lost with its worker, once or twice.

    Attributes:
        pending: after the second loss, its requests that have not been answered alone yet.
    """

    api: str
    size: float
    requests: tuple[Any, ...]
    places: set[int] = field(default_factory=set)
    pending: set[Any] = field(default_factory=set)


class LethalBatches:
    """Finds batches that were too large for the memory of their workers.

    The kernel has killed the worker of such a batch; or the batch has lost two workers, and its requests were
    then all answered alone, so that none of them was at fault. If a batch of that size has worked, something
    else killed the workers. An observer of the dispatcher.

    Args:
        index_of: returns the index of the worker with a key; negative if it is unknown.
        found: called with API, indexes of the workers, and size of such a batch. If the kernel has killed the
            worker, the indexes are None: all workers of this machine share its memory.
    """

    def __init__(
        self, index_of: Callable[[int], int], found: Callable[[str, Collection[int] | None, float], object]
    ) -> None:
        self._index_of = index_of
        self._found = found
        self._cases: dict[Any, _Case] = {}
        """The batches by request."""
        self._oldest: deque[_Case] = deque()
        self._largest: dict[str, float] = {}
        """The size of the largest batch that has worked, by API."""
        self._ran: dict[int, tuple[str, float]] = {}
        """API and size of the batches of the workers lost last, without batches ahead."""
        self._killed: deque[int] = deque(maxlen=_REMEMBERED)
        """The workers that the kernel has killed last, known before they were lost."""

    def forget_sizes(self) -> None:
        """Forget which sizes have worked, because the code has changed."""
        self._largest.clear()

    def killed(self, worker: int) -> None:
        """Note that the kernel has killed a worker for lack of memory; it may have been lost already."""
        if worker in self._ran:
            self._killed_by(*self._ran.pop(worker))
        else:
            self._killed.append(worker)

    def batch_started(self, batch: Batch[Any]) -> None:
        """Do nothing; see :class:`uncork_dispatcher.Observer`."""

    def request_shed(self, shed: Shed) -> None:
        """Do nothing; see :class:`uncork_dispatcher.Observer`."""

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        is_alone = len(batch.requests) == 1
        if status == "worked" and (size := _size(batch)) > self._largest.get(batch.api, 0.0):
            self._largest[batch.api] = size
        if status == "lost":
            self._worker_lost(batch)
        if status == "lost" and not is_alone:
            self._lost(batch)
        elif self._cases and (case := self._cases.get(batch.requests[0])) is not None:
            if status in ("worked", "failed") and is_alone and case.pending:
                self._answered_alone(case, batch.requests[0])
            else:
                self._close(case)

    def _worker_lost(self, batch: Batch[Any]) -> None:
        """Note the batch that a lost worker ran. A batch ahead is reported second, and ignored."""
        # A single request may be at fault itself.
        worker, size = batch.worker, _size(batch) if len(batch.requests) > 1 else 0.0
        if worker in self._killed:
            self._killed.remove(worker)
            self._killed_by(batch.api, size)
        elif worker not in self._ran:
            self._ran[worker] = batch.api, size
            if len(self._ran) > _REMEMBERED:
                del self._ran[next(iter(self._ran))]

    def _killed_by(self, api: str, size: float) -> None:
        """Note that the kernel has killed a worker that ran a batch of this size."""
        if size > self._largest.get(api, 0.0):
            self._found(api, None, size)

    def _lost(self, batch: Batch[Any]) -> None:
        case = self._cases.get(batch.requests[0])
        if case is None:
            case = _Case(batch.api, _size(batch), batch.requests)
            self._cases.update(dict.fromkeys(batch.requests, case))
            self._oldest.append(case)
            if len(self._oldest) > _REMEMBERED:
                self._close(self._oldest[0])
        else:
            # If memory is limited, only some of the requests have run again.
            case.pending, case.size = {*batch.requests}, _size(batch)
        case.places.add(self._index_of(batch.worker))

    def _answered_alone(self, case: _Case, request: Any) -> None:
        case.pending.discard(request)
        if not case.pending:
            self._close(case)
            if case.size > self._largest.get(case.api, 0.0):
                self._found(case.api, [index for index in case.places if index >= 0], case.size)

    def _close(self, case: _Case) -> None:
        for request in case.requests:
            self._cases.pop(request, None)
        self._oldest.remove(case)


def _size(batch: Batch[Any]) -> float:
    return batch.padded if batch.pads else batch.rows
