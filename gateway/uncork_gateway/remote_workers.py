"""Workers that nobody launched for the gateway: which of them are in service.

A worker that describes the service in force joins at once. One that describes another service, as during a
rolling update, stands by until a successor can be chosen; then all that describe it take over together.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from uncork_gateway.apis import Apis
from uncork_gateway.backends.worker_connection import WorkerConnection
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.worker_events import WorkerEvents
from uncork_workers.wire.schema import ServiceDescription

log = logging.getLogger("uncork.gateway")


class RemoteWorkers:
    """Decides which self-started workers of a pool are in service, whenever one of them has changed."""

    def __init__(self, pool: WorkerPool, apis: Apis, events: WorkerEvents) -> None:
        self._pool = pool
        self._apis = apis
        self._events = events
        self._replaced: set[str] = set()
        """Processes that others have taken over from. They come back as standbys, and must not count as
        successors of their successors. Grows by a short text for each replaced worker."""
        self._unusable: list[ServiceDescription] = []
        """Services that cannot be served."""

    def reconsider(self) -> None:
        """Put in service what may join, and replace what has a successor."""
        workers = self._pool.self_started()
        if not any(worker.is_launched for worker in self._pool.in_service()):
            successor = choose_successor(self._apis.service, workers, self._replaced, self._unusable)
            if successor is not None:
                self._replace_by(successor)
        for worker in workers:
            if not worker.standby and not self._is_current(worker):
                self._replaced.add(worker.instance)
                self._pool.retire(worker)
        for worker in workers:
            if worker.standby and self._is_current(worker):
                self._pool.join(worker)

    def _is_current(self, worker: WorkerConnection) -> bool:
        return worker.hello is not None and worker.hello.service == self._apis.service

    def _replace_by(self, successor: ServiceDescription) -> None:
        is_first = self._apis.service is None
        try:
            self._events.serve(successor)
        except ValueError as error:
            # Unlike a launched worker's, it is no reason to exit: other workers may come.
            log.error("a remote worker has a service that cannot be served: %s", error)
            self._unusable.append(successor)
            return
        if not is_first:
            log.info("the workers with another version of the service take over")


def choose_successor(
    in_force: ServiceDescription | None,
    workers: Sequence[WorkerConnection],
    replaced: set[str],
    unusable: Sequence[ServiceDescription],
) -> ServiceDescription | None:
    """Return the service that should replace the one in force; None if it should stay.

    That is the one with the most ready standbys, if they are as many as the ready workers in service, or if
    no worker is left in service. Before any service is in force, the first description is enough.
    """
    described = [(worker, worker.hello.service) for worker in workers if worker.hello is not None]
    described = [(worker, service) for worker, service in described if service not in unusable]
    if in_force is None:
        return described[0][1] if described else None
    serving = [worker for worker, service in described if not worker.standby and service == in_force]
    candidates: Counter[int] = Counter()
    services: list[ServiceDescription] = []
    for worker, service in described:
        counts = worker.standby and worker.is_ready and (not serving or worker.instance not in replaced)
        if service == in_force or not counts:
            continue
        if service not in services:
            services.append(service)
        candidates[services.index(service)] += 1
    if not candidates:
        return None
    [(best, count)] = candidates.most_common(1)
    enough = not serving or count >= max(1, sum(worker.is_ready for worker in serving))
    return services[best] if enough else None
