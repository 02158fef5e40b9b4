"""Decides which workers are in service.

A worker that describes the current service joins at once. A worker that the supervisor has restarted may
describe a different one, because files have changed; it is on standby while other launched workers have the
current service. So is a self-started worker with a different service, as in a rolling update, until that
service is chosen as successor; then all its workers take over together.

While launched workers serve, or a request starts one, self-started workers succeed nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uncork_gateway.backends.worker_connection import WorkerConnection
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.services.apis import Apis
from uncork_gateway.services.worker_events import WorkerEvents
from uncork_workers.wire.schema import ServiceDescription

_TAKEN_OVER = "workers with another version of the service have taken over"


class Joining:
    """Decides which workers are in service, whenever one of them changes.

    ``is_from_zero`` returns True while the service sleeps or wakes up.
    """

    def __init__(
        self, pool: WorkerPool, apis: Apis, events: WorkerEvents, *, is_from_zero: Callable[[], bool]
    ) -> None:
        self._pool = pool
        self._apis = apis
        self._events = events
        self._is_from_zero = is_from_zero
        self._superseded: list[ServiceDescription] = []
        """Services that had ready workers when others took over. Their workers return on standby, and must
        not become successors; nor must new workers with the same code."""
        self._unusable: list[ServiceDescription] = []
        self._is_deciding = False
        """True while decisions cause events of workers."""

    def settings_changed(self) -> None:
        """Consider again the services that could not be served with the earlier settings."""
        self._unusable.clear()
        self.reconsider()

    def reconsider(self) -> None:
        """Let eligible workers join, and replace the current service if it has a successor."""
        if not self._is_deciding:
            self._is_deciding = True
            try:
                self._decide()
            finally:
                self._is_deciding = False

    def _decide(self) -> None:
        self._let_launched_join()
        workers = self._pool.self_started()
        if not (self._is_from_zero() or any(worker.is_launched for worker in self._pool.in_service())):
            successor = choose_successor(self._apis.service, workers, self._superseded, self._unusable)
            if successor is not None:
                self._replace_by(successor)
        for worker in workers:
            if not worker.standby and not self._is_current(worker):
                self._pool.retire(worker, _TAKEN_OVER)
        for worker in workers:
            if worker.standby and self._is_current(worker):
                self._pool.join(worker)

    def _let_launched_join(self) -> None:
        for worker in self._pool.held():
            assert worker.hello is not None
            service, is_known = worker.hello.service, self._events.described.done()
            others = [one for one in self._pool.in_service() if one.is_launched]
            is_free = self._is_current(worker) or not any(map(self._is_current, others))
            if not is_free or (is_known and service in self._unusable):
                continue
            if self._events.describe(service):
                self._pool.join(worker)
            else:
                self._unusable.append(service)

    def _is_current(self, worker: WorkerConnection) -> bool:
        return worker.hello is not None and worker.hello.service == self._apis.service

    def _replace_by(self, successor: ServiceDescription) -> None:
        old = self._apis.service
        was_ready = any(one.ready is not None and self._is_current(one) for one in self._pool.in_service())
        try:
            self._events.serve(successor)
        except ValueError as error:
            # Unlike a launched worker's, it is no reason to exit: other workers may come.
            self._events.log.error("a remote worker has a service that cannot be served: %s", error)
            self._unusable.append(successor)
            return
        if old is not None:
            # Without a ready worker, the old service has failed or is starting, and may be the newer one.
            if was_ready and old not in self._superseded:
                self._superseded.append(old)
            self._events.log.info("the workers with another version of the service take over")


def choose_successor(
    in_force: ServiceDescription | None,
    workers: Sequence[WorkerConnection],
    superseded: Sequence[ServiceDescription],
    unusable: Sequence[ServiceDescription],
) -> ServiceDescription | None:
    """Return the service that should replace the current one; None if the current one should stay.

    The successor is the service with the most ready workers on standby, if they are at least as many as the
    ready workers in service. A superseded service comes last, and only if no worker in service is ready.
    Without a current service, the first description is enough.
    """
    described = [(worker, worker.hello.service) for worker in workers if worker.hello is not None]
    described = [(worker, service) for worker, service in described if service not in unusable]
    if in_force is None:
        return described[0][1] if described else None
    serving = sum(one.accepts_batches and service == in_force for one, service in described)
    ready = [service for one, service in described if one.standby and one.ready and service != in_force]
    candidates = [service for service in ready if service not in superseded]
    if not candidates and not serving:
        candidates = ready
    if not candidates:
        return None
    best = max(candidates, key=candidates.count)
    return best if candidates.count(best) >= serving else None
