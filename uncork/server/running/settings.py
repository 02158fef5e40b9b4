"""The settings of a running ``uncork serve``: read them again."""

from __future__ import annotations

from dataclasses import dataclass, field

from uncork.config.errors import WrongUsage
from uncork.server.listeners import keys_in
from uncork.server.options import ServeOptions
from uncork.server.running.revision import Revision
from uncork.server.running.service import Place, RunningService
from uncork.server.servers import Servers
from uncork.server.services import errors_of, services_of
from uncork.server.workers.placement import check_placement
from uncork_gateway.auth import ApiKeys
from uncork_gateway.backends.worker_failures import WorkerStartup


def check_options(options: ServeOptions, services: dict[str, ServeOptions]) -> None:
    """Check the options that depend on each other, those of the server and of each service.

    Raises:
        WrongUsage: if they contradict each other.
    """
    if options.watch_config and not files_of(options):
        raise WrongUsage("--watch-config requires --config or --api-key-file")
    for name, one in services.items():
        with errors_of(name):
            check_placement(one)


def files_of(options: ServeOptions) -> list[str]:
    """Return the files that settings come from."""
    return [str(file) for file in (options.config, options.api_key_file) if file is not None]


def _named(service: str, index: int) -> str:
    """Name a worker; the only service has no name."""
    return f"{service}: worker {index}" if service else f"worker {index}"


@dataclass(slots=True, kw_only=True)
class RunningSettings:
    """The settings in force, and what they concern.

    Attributes:
        options, keys: those of the server.
        services: the running services, by name.
        leaving: services that a reload has removed, and that answer what they have accepted.
        files: the files that the settings come from.
        unloaded: services that clients have unloaded; a reload does not start them again.
    """

    options: ServeOptions
    keys: ApiKeys | None
    place: Place
    servers: Servers
    services: dict[str, RunningService]
    files: set[str]
    leaving: list[RunningService] = field(default_factory=list)
    unloaded: set[str] = field(default_factory=set)

    # What is shown while the workers start

    @property
    def draining(self) -> bool:
        return self.place.gateway.front_end.draining

    def expected(self) -> list[str]:
        """Return the names of the workers that are to start first."""
        return [
            _named(name, index)
            for name, service in self.services.items()
            for index in range(service.options.worker_count.least)
        ]

    def starts(self) -> dict[str, WorkerStartup]:
        """Return the stages of the workers that are not ready."""
        return {
            _named(name, index): start
            for name, service in self.services.items()
            for index, start in service.served.starts().items()
        }

    def ready_workers(self) -> set[str]:
        return {
            _named(name, index)
            for name, service in self.services.items()
            for index in service.served.ready_workers()
        }

    # What a reload reads

    def replace_files(self) -> None:
        """Note that the settings come from other files; a watcher sees the new ones."""
        self.files.clear()
        self.files.update(files_of(self.options))

    def read(self) -> Revision:
        """Read the files again.

        Raises:
            WrongUsage: if a setting is wrong, in the words of the start.
        """
        options, services = self._read()
        self.unloaded &= services.keys()
        loaded = {name: one for name, one in services.items() if name not in self.unloaded}
        return Revision(self, options, loaded, keys_in(options.api_key_file))

    def loading(self, name: str) -> Revision:
        """Return what starts one service as it is configured now, or replaces its workers.

        Raises:
            WrongUsage: if it is not configured, or its settings are wrong.
        """
        _, services = self._read()
        if name not in services:
            known = ", ".join(filter(None, services)) or "none, the only service has no name of its own"
            raise WrongUsage(f"no service {name!r} is configured; those that can be loaded: {known}")
        return Revision(self, self.options, {**self._running(), name: services[name]}, self.keys)

    def unloading(self, name: str) -> Revision:
        """Return what stops one service.

        Raises:
            WrongUsage: if it does not run.
        """
        running = self._running()
        if not name or name not in running:
            known = ", ".join(filter(None, running)) or "none"
            raise WrongUsage(f"no service {name!r} is loaded; those that can be unloaded: {known}")
        del running[name]
        return Revision(self, self.options, running, self.keys)

    def _running(self) -> dict[str, ServeOptions]:
        return {name: service.options for name, service in self.services.items()}

    def _read(self) -> tuple[ServeOptions, dict[str, ServeOptions]]:
        """Read the files again; return the options of the server and of each service."""
        options: ServeOptions = self.options if self.options.reread is None else self.options.reread()
        services = services_of(options)
        check_options(options, services)
        return options, services
