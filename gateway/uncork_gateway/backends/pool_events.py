"""The events of workers that the worker pool reports to its listener."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from uncork_gateway.backends.worker_connection import WorkerConnection
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.messages import Failed


class Described(NamedTuple):
    """A worker has imported its service and described it. It may still be on standby."""

    worker: WorkerConnection


class Joined(NamedTuple):
    """A described worker enters service: it gets batches now, or as soon as it is ready."""

    worker: WorkerConnection


class WarmsUp(NamedTuple):
    """A worker warms up an API with ``rows`` rows of its example."""

    worker: WorkerConnection
    api: str
    rows: int


class IsReady(NamedTuple):
    """A worker has finished setup, or enters service after it has.

    It accepts batches, including a batch ahead, unless it is on standby.
    """

    worker: WorkerConnection


class CannotServe(NamedTuple):
    """A worker cannot become ready, and will exit."""

    worker: WorkerConnection
    failed: Failed


class Leaves(NamedTuple):
    """A worker gets no more batches; its connection is closed when its current batches end."""

    worker: WorkerConnection


class Gone(NamedTuple):
    """The connection of a worker that had described itself is closed, and its batches are lost."""

    worker: WorkerConnection


PoolEvent = Described | Joined | WarmsUp | IsReady | CannotServe | Leaves | Gone


class PoolListener(Protocol):
    """Notified of events of workers.

    Attributes:
        log: names the workers' service in messages, if there are several.
    """

    log: ServiceLog

    def on_worker(self, event: PoolEvent) -> None:
        """Handle an event. ``event.worker.key`` is the worker's key in the dispatcher."""
