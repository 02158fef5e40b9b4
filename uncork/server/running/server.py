"""A running ``uncork serve``: its services, and the current settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from uncork.server.credentials import FILES, Credentials
from uncork.server.options import ServeOptions
from uncork.server.running.service import Place, RunningService
from uncork.server.server_options import ServerOptions
from uncork.server.servers import Servers
from uncork.server.services import about
from uncork_gateway.backends.worker_failures import WorkerStartup

NO_FILES = "--watch-config requires --config, or a file of keys, certificates, a token or imported settings"
_IMPORTED = ("inference_service", "model_settings")


def files_of(options: ServerOptions) -> list[str]:
    """Return the files that settings come from."""
    files = (options.config, *(getattr(options, name, None) for name in (*FILES, *_IMPORTED)))
    return [str(file) for file in files if file is not None]


@dataclass(slots=True, kw_only=True)
class RunningServer:
    """A server: its services, and the current settings.

    Attributes:
        credentials: the keys and certificates that are in force.
        servers: serve clients; None if another application does.
        leaving: services that a reload has removed, and that answer what they have accepted.
        unloaded: services that clients have unloaded; a reload does not start them again.
    """

    options: ServeOptions
    credentials: Credentials
    place: Place
    servers: Servers | None
    services: dict[str, RunningService]
    leaving: list[RunningService] = field(default_factory=list)
    unloaded: set[str] = field(default_factory=set)

    @property
    def draining(self) -> bool:
        return self.place.gateway.front_end.draining

    def expected(self) -> list[str]:
        """Return the names of the workers that are to start first."""
        return [
            about(name, f"worker {index}")
            for name, service in self.services.items()
            for index in range(service.options.worker_count.first)
        ]

    def starts(self) -> dict[str, WorkerStartup]:
        """Return the stages of the workers that are not ready."""
        return {
            about(name, f"worker {index}"): start
            for name, service in self.services.items()
            for index, start in service.served.events.failures.starts().items()
        }

    def ready_workers(self) -> set[str]:
        return {
            about(name, f"worker {index}")
            for name, service in self.services.items()
            for index in service.served.pool.ready()
        }
