"""What the worker pool reports."""

from typing import Protocol

from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.messages import Failed, Hello, Ready
from uncork_workers.wire.schema import ServiceDescription


class PoolListener(Protocol):
    """Notified of events of workers.

    ``worker`` is the number of a connection and of its successors after a takeover; it is never reused.

    Attributes:
        log: names the service of the workers, where there are several.
    """

    log: ServiceLog

    def worker_imported(self, files: list[str]) -> None:
        """A worker has imported its service from these files of the user."""

    def worker_described(self, service: ServiceDescription) -> None:
        """A worker has described its service."""

    def worker_ready(self, worker: int, hello: Hello, *, takes_ahead: bool = True) -> None:
        """A worker accepts batches; one that ``takes_ahead`` also accepts one while it runs another."""

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        """A worker that now accepts batches has sent the results of its warm-up."""

    def worker_lost(self, worker: int, hello: Hello) -> None:
        """The connection to a worker, which accepted batches, is lost."""

    def worker_leaves(self, worker: int) -> None:
        """A worker that accepted batches finishes the current one, and accepts no more."""

    def worker_connected(self, index: int) -> None:
        """A worker has connected and sets up its service. Not called for standbys."""

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        """A worker warms up an API with ``rows`` rows of its example. Not called for standbys."""

    def batch_finished(self, launch: int) -> None:
        """A process of the supervisor has replied to a batch."""

    def worker_dropped(self, launch: int) -> None:
        """The connection of a process of the supervisor was closed because it is unusable."""

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        """A worker cannot become ready; ``standby`` if it was started to take over."""

    def worker_stands_by(self, launch: int) -> None:
        """A process of the supervisor is ready to take over."""

    def worker_retired(self, launch: int) -> None:
        """A replaced process of the supervisor has finished its last batch; its connection was closed."""

    def worker_gone(self, index: int) -> None:
        """A worker that the supervisor did not launch has disconnected, whatever its state."""

    def joining_changed(self) -> None:
        """A worker that the supervisor did not launch has described itself, is ready, leaves, or has gone."""
