"""The settings of a running ``uncork serve``: read them again."""

from __future__ import annotations

from uncork.config.errors import WrongUsage
from uncork.server.credentials import read_credentials
from uncork.server.options import ServeOptions
from uncork.server.running.revision import Revision
from uncork.server.running.server import NO_FILES, RunningServer, files_of
from uncork.server.services import ONLY, errors_of, services_of
from uncork.server.workers.placement import check_placement
from uncork.server.workers.worker_port import check_token


def check_options(options: ServeOptions, services: dict[str, ServeOptions]) -> None:
    """Check the options that depend on each other, those of the server and of each service.

    Raises:
        WrongUsage: if they contradict each other.
    """
    if options.watch_config and not files_of(options):
        raise WrongUsage(NO_FILES)
    for name, one in services.items():
        with errors_of(name):
            check_placement(one)
            check_token(one, on_ray=one.ray_address is not None)


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
                f"service {name!r} cannot be loaded: the only service has no name of its own; give it one, "
                "as in NAME=FILE.py:SERVICE, and restart the server"
            )
        if name not in services:
            known = ", ".join(filter(None, services)) or "none, the only service has no name of its own"
            raise WrongUsage(f"no service {name!r} is configured; those that can be loaded: {known}")
        return Revision(self, self.options, {**self._running(), name: services[name]}, self.credentials)

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
        return Revision(self, self.options, running, self.credentials)

    def _running(self) -> dict[str, ServeOptions]:
        return {name: service.options for name, service in self.services.items()}

    def _read(self) -> tuple[ServeOptions, dict[str, ServeOptions]]:
        """Read the files again; return the options of the server and of each service."""
        options: ServeOptions = self.options if self.options.reread is None else self.options.reread()
        services = services_of(options)
        check_options(options, services)
        return options, services
