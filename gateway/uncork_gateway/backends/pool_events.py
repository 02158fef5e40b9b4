"""Events of workers, as the worker pool reports them to its listener."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from uncork_gateway.backends.worker_connection import WorkerConnection
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.messages import Failed


class Described(NamedTuple):
    """A worker has imported its service and described it; it may still stand by."""

    worker: WorkerConnection


class Joined(NamedTuple):
    """A described worker gets batches from now on, or as soon as it is ready."""

    worker: WorkerConnection


class WarmsUp(NamedTuple):
    """A worker warms up an API with ``rows`` rows of its example."""

    worker: WorkerConnection
    api: str
    rows: int


class IsReady(NamedTuple):
    """A worker has set up its service, or one that has done so has joined.

    It accepts batches, the next one early; unless it stands by.
    """

    worker: WorkerConnection


class CannotServe(NamedTuple):
    """A worker cannot become ready, and exits."""

    worker: WorkerConnection
    failed: Failed


class Leaves(NamedTuple):
    """A worker finishes its batches and gets no more; then its connection is closed."""

    worker: WorkerConnection


class Gone(NamedTuple):
    """The connection of a worker that has described itself is closed, and its batches are lost."""

    worker: WorkerConnection


PoolEvent = Described | Joined | WarmsUp | IsReady | CannotServe | Leaves | Gone


class PoolListener(Protocol):
    """Notified of events of workers.

    Attributes:
        log: names the service of the workers, where there are several.
    """

    log: ServiceLog

    def on_worker(self, event: PoolEvent) -> None:
        """Act on an event. ``event.worker.key`` is the worker in the dispatcher."""
