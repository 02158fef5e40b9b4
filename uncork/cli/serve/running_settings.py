"""The settings of a running ``uncork serve``: read them again, and put them in force."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass

from uncork.cli.serve.changes import changes_between
from uncork.cli.serve.gpus import require_gpus
from uncork.cli.serve.options import ServeOptions
from uncork.cli.serve.placement import StarterWith, check_placement
from uncork.config.errors import WrongUsage
from uncork.server.listeners import keys_in
from uncork.server.servers import Servers
from uncork.server.serving import log_to_terminal
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.auth import ApiKeys
from uncork_gateway.interfaces import Tracing
from uncork_gateway.pages.status.document import SettingsChange
from uncork_gateway.scaling import Scaling
from uncork_workers.supervision.recycling import Recycler
from uncork_workers.supervision.supervisor import Supervisor

log = logging.getLogger("uncork.gateway")


def check_options(options: ServeOptions) -> None:
    """Check the options that depend on each other.

    Raises:
        WrongUsage: if they contradict each other.
    """
    check_placement(options)
    if options.watch_config and not files_of(options):
        raise WrongUsage("--watch-config requires --config or --api-key-file")


def files_of(options: ServeOptions) -> list[str]:
    """Return the files that settings come from."""
    return [str(file) for file in (options.config, options.api_key_file) if file is not None]


def gateway_settings(
    options: ServeOptions, keys: ApiKeys | None, *, admin: bool, grpc: bool, traces: Tracing | None
) -> GatewaySettings:
    """Return the settings of the gateway. The arguments without a default are what no reload changes."""
    return GatewaySettings(
        overrides=options.overrides,
        workers=options.worker_count.most,
        warmup_seconds=options.warmup_seconds,
        keys=keys,
        admin=admin,
        grpc=grpc,
        traces=traces,
        **options.server_settings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a server that settings concern."""

    gateway: Gateway
    supervisor: Supervisor
    starter_with: StarterWith
    scaling: Scaling
    recycler: Recycler
    servers: Servers


class RunningSettings:
    """The settings in force. ``options`` and ``keys`` are those of the start.

    Attributes:
        files: the files that they come from.
    """

    def __init__(self, options: ServeOptions, keys: ApiKeys | None, parts: Parts) -> None:
        self.options = options
        self.keys = keys
        self.parts = parts
        self.files = set(files_of(options))

    def read(self) -> Revision:
        """Read the files again.

        Raises:
            WrongUsage: if a setting is wrong, in the words of the start.
        """
        before = self.options
        options: ServeOptions = before if before.reread is None else before.reread()
        check_options(options)
        if options.gpus != before.gpus:
            require_gpus(options, warn=lambda text: log.warning("%s", text))
        return Revision(self, options, keys_in(options.api_key_file))


class Revision:
    """Settings that were read again, for the server of ``running``.

    Attributes:
        changes: what differs from the settings in force.
        start: starts workers with these settings.
    """

    def __init__(self, running: RunningSettings, options: ServeOptions, keys: ApiKeys | None) -> None:
        self._running = running
        self._options = options
        self._keys = keys
        self.changes = changes_between(running.options, options, other_keys=keys != running.keys)
        self.start = running.parts.starter_with(options)

    def take_over(self, launches: Collection[int]) -> Collection[int]:
        """Put the settings in force, and the workers of these launches.

        Raises:
            ValueError: if that is impossible; nothing has changed then.
        """
        replaced = self._running.parts.gateway.take_over(launches, self._settings())
        self._adopt()
        return replaced

    def apply(self) -> None:
        """Put the settings in force, and keep the workers.

        Raises:
            ValueError: if the service cannot be served with them; nothing has changed then.
        """
        self._running.parts.gateway.change(self._settings())
        self._running.parts.supervisor.start_by(self.start)
        self._adopt()

    async def scale(self) -> None:
        """Start or stop workers until their number is in the range."""
        least, most = self._options.worker_count
        if most:
            await self._running.parts.scaling.change_bounds(least, most)

    def _settings(self) -> GatewaySettings:
        now = self._running.parts.gateway.events.settings
        return gateway_settings(self._options, self._keys, admin=now.admin, grpc=now.grpc, traces=now.traces)

    def _adopt(self) -> None:
        """Put in force what does not concern the gateway; this cannot fail."""
        running, options, parts = self._running, self._options, self._running.parts
        before, running.options, running.keys = running.options, options, self._keys
        running.files.clear()
        running.files.update(files_of(options))
        parts.recycler.limits = options.recycling
        parts.servers.change(
            max_body_bytes=options.max_body_bytes, max_connection_age_s=options.grpc_max_connection_age
        )
        if (options.log_level, options.log_format) != (before.log_level, before.log_format):
            log_to_terminal(options.log_level, options.log_format.value, again=True)
        if self.changes:
            names = [change.name for change in self.changes]
            parts.gateway.front_end.settings_change = SettingsChange(time=time.time(), names=names)
