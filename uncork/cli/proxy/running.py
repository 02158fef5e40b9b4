"""A running ``uncork proxy``: read its settings again, and apply them."""

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from uncork.cli.proxy.options import OPTIONS, ProxyOptions
from uncork.cli.usage import in_options
from uncork.config.changes import Change, Effect, value_text
from uncork.config.errors import WrongUsage
from uncork.server.control_socket import Outcome
from uncork.server.credentials import Credentials, files_of, read_credentials, renewed
from uncork.server.running.changes import changes_of_proxy
from uncork.server.running.reloading import changed_settings, not_reloaded, refuse_restart
from uncork.server.servers import Servers
from uncork.server.serving import log_to_terminal
from uncork_gateway.pages.status.document import SettingsChange
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings

log = logging.getLogger("uncork.gateway")

_IMPORTED = ("max_batch_rows", "max_hold_s", "timeout_s", "policy")
"""The settings that another system may have."""


class RunningProxy:
    """Reloads on SIGHUP, for ``uncork reload`` and when files change. A reload changes everything or nothing.

    Attributes:
        options: the current ones.
    """

    def __init__(
        self,
        proxy: Proxy,
        servers: Servers,
        options: ProxyOptions,
        settings: ProxySettings,
        credentials: Credentials,
    ) -> None:
        self.options = options
        self._proxy = proxy
        self._servers = servers
        self._settings = settings
        self._credentials = credentials

    def on_hangup(self) -> None:
        self._reload("SIGHUP")

    async def reload_requested(self) -> Outcome:
        return self._reload("uncork reload")

    async def diff_requested(self) -> Outcome:
        try:
            *_, changes = self._read()
        except WrongUsage as error:
            return Outcome(2, str(error))
        return Outcome(1 if changes else 0, "", tuple(changes))

    async def watch(self) -> None:
        """Reload whenever a file of the settings has changed."""
        async for reason in changed_settings(lambda: files_of(self.options)):
            self._reload(reason)

    def _read(self) -> tuple[ProxyOptions, ProxySettings, Credentials, list[Change]]:
        """Read the files again; return options, settings and credentials, and the changes."""
        options: ProxyOptions = self.options if self.options.reread is None else self.options.reread()
        options.check_servers()
        credentials = read_credentials(options)
        own, fixed = options.settings(options.imported()), self._settings
        settings = replace(
            own, traces=fixed.traces, keys=credentials.keys, admin=fixed.admin, grpc=fixed.grpc
        )
        others = renewed(self._credentials.contents, credentials.contents)
        changes = changes_of_proxy(self.options, options, renewed=others)
        changes += _of_imported(fixed, settings, [change.name for change in changes])
        return options, settings, credentials, changes

    def _reload(self, reason: str) -> Outcome:
        try:
            options, settings, credentials, changes = self._read()
            refuse_restart(changes)
            renew = any(change.name == "server_ca" for change in changes)
            self._proxy.change(options.servers, settings, renew=renew)
        except WrongUsage as error:
            return not_reloaded(reason, "failed", "nothing has changed", error)
        except ValueError as error:
            return not_reloaded(reason, "failed", "nothing has changed", in_options(error, OPTIONS))
        before, self.options = self.options, options
        if settings == self._settings and not changes:
            return Outcome(0, "no setting has changed")
        self._settings, self._credentials = settings, credentials
        self._servers.change(credentials, options)
        if (options.log_level, options.log_format) != (before.log_level, before.log_format):
            log_to_terminal(options.log_level, options.log_format, again=True)
        names = [change.name for change in changes] or ["imported settings"]
        self._proxy.front_end.settings_change = SettingsChange(time=time.time(), names=names)
        named = ", ".join(names)
        log.info("%s: settings changed: %s", reason, named)
        return Outcome(0, f"reloaded; settings changed: {named}")


def _of_imported(before: ProxySettings, after: ProxySettings, named: Collection[str]) -> Iterator[Change]:
    """Yield how imported settings differ, except those whose options are ``named`` already."""
    for field in _IMPORTED:
        name = OPTIONS[field].removeprefix("--").replace("-", "_")
        old, new = getattr(before, field), getattr(after, field)
        if old != new and name not in named:
            if field == "max_hold_s":
                old, new = 1000 * old, 1000 * new
            yield Change(name, value_text(old), value_text(new), Effect.AT_ONCE)
