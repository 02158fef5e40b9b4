"""The settings of ``uncork serve``: check them before it starts, and read them again while it runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from uncork.config.errors import WrongUsage
from uncork.server.credentials import check_watched, read_credentials, read_worker_credentials
from uncork.server.listeners import check_listeners
from uncork.server.options import ServeOptions
from uncork.server.running.revision import Revision
from uncork.server.running.service import RunningServer
from uncork.server.services import ONLY, errors_of, services_of, with_all_workers
from uncork.server.workers.placement import check_placement
from uncork.server.workers.requirements import require_resources
from uncork.server.workers.worker_port import check_connections, check_worker_port
from uncork_workers.extras import install_command


def check_options(options: ServeOptions, services: dict[str, ServeOptions]) -> None:
    """Check the options that depend on each other, those of the server and of each service.

    Raises:
        WrongUsage: if they contradict each other.
    """
    check_watched(options)
    for name, one in services.items():
        with errors_of(name):
            check_placement(one)
            check_connections(one, workers=one.worker_count.most, on_ray=one.ray_address is not None)


def to_start(
    options: ServeOptions, *, warn: Callable[[str], object]
) -> tuple[ServeOptions, dict[str, ServeOptions]]:
    """Return the options of a server and of each service, after all checks that need no port.

    ``warn`` gets the reason if GPUs cannot be counted.

    Raises:
        WrongUsage: if the server cannot start with them.
    """
    if options.reload and find_spec("watchfiles") is None:
        raise WrongUsage(f"--reload requires watchfiles; run {install_command('reload')}")
    services = services_of(options)
    check_options(options, services)
    # Only now: a reload may remove the last service with a port, but not these options.
    has_port = any(one.worker_port is not None or one.ray_address is not None for one in services.values())
    check_worker_port(options, has_port=has_port)
    check_listeners(options)
    for name, one in services.items():
        with errors_of(name):
            read_worker_credentials(one, on_ray=one.ray_address is not None)
    require_resources(services, warn=warn)
    return with_all_workers(options, services), services


class RunningSettings(RunningServer):
    """A server whose settings can be read again."""

    def read(self) -> Revision:
        """Read the files again.

        Raises:
            WrongUsage: if a setting is wrong, in the words of the start.
        """
        options, services = self._read()
        forgotten = self.unloaded - services.keys()
        loaded = {name: one for name, one in services.items() if name not in self.unloaded}
        return Revision(self, options, loaded, read_credentials(options), forgotten=forgotten)

    def loading(self, name: str) -> Revision:
        """Return what starts one service as it is configured now, or replaces its workers.

        Raises:
            WrongUsage: if it is not configured, or its settings are wrong.
        """
        _, services = self._read()
        if ONLY in self.services:
            raise WrongUsage(
                f"service {name[:100]!r} cannot be loaded: the only service has no name of its own; give it "
                "one, as in NAME=FILE.py:SERVICE, and restart the server"
            )
        if name not in services:
            known = ", ".join(filter(None, services)) or "none, the only service has no name of its own"
            raise WrongUsage(f"no service {name[:100]!r} is configured; those that can be loaded: {known}")
        return Revision(self, self.options, {**self._running(), name: services[name]}, self.credentials)

    def unloading(self, name: str) -> Revision:
        """Return what stops one service.

        Raises:
            WrongUsage: if it does not run.
        """
        running = self._running()
        if not name or name not in running:
            known = ", ".join(filter(None, running)) or "none"
            raise WrongUsage(f"no service {name[:100]!r} is loaded; those that can be unloaded: {known}")
        del running[name]
        return Revision(self, self.options, running, self.credentials)

    def _running(self) -> dict[str, ServeOptions]:
        return {name: service.options for name, service in self.services.items()}

    def _read(self) -> tuple[ServeOptions, dict[str, ServeOptions]]:
        """Read the files again; return the options of the server and of each service."""
        options: ServeOptions = self.options if self.options.reread is None else self.options.reread()
        services = services_of(options)
        check_options(options, services)
        return options, services
