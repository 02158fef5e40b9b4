"""Settings of a running ``uncork serve`` that were read again: apply them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from uncork.config.changes import Change, Effect, needing
from uncork.server.credentials import Credentials, read_worker_credentials, renewed
from uncork.server.options import ServeOptions
from uncork.server.running.changes import changes_between, changes_of_server, changes_of_services
from uncork.server.running.service import RunningServer, RunningService
from uncork.server.services import ONLY, about, errors_of, with_all_workers
from uncork.server.serving import log_to_terminal
from uncork.server.workers.requirements import require_resources
from uncork_gateway import GatewaySettings
from uncork_gateway.pages.status.document import SettingsChange
from uncork_gateway.services.catalogue import check_together
from uncork_gateway.services.served_service import Change as ServiceChange
from uncork_workers.supervision.launcher import Starter
from uncork_workers.supervision.supervisor import ReplacementFailed, Standbys

log = logging.getLogger("uncork.gateway")

_UNNAMED = "one without a name"


class Revision:
    """Settings that were read again, for the server of ``running``.

    Attributes:
        changes: what differs from the current settings.
        forgotten: services that clients have unloaded, and that are no longer configured.
    """

    def __init__(
        self,
        running: RunningServer,
        options: ServeOptions,
        services: Mapping[str, ServeOptions],
        credentials: Credentials,
        *,
        forgotten: Collection[str] = (),
    ) -> None:
        self._running = running
        self._options = with_all_workers(options, services)
        self._services = services
        self._credentials = credentials
        self.forgotten = forgotten
        before = {name: one.options for name, one in running.services.items()}
        self._kept = [name for name in services if name in before]
        self._of_workers = {
            name: read_worker_credentials(services[name], on_ray=services[name].ray_address is not None)
            for name in self._kept
        }
        self._added = [name for name in services if name not in before]
        self._removed = [name for name in before if name not in services]
        self._starters: dict[str, Starter] = {}
        """What starts the workers of each service that stays."""
        of_server, of_services = self._changes(before)
        self.changes: Sequence[Change] = [*of_server, *(one for some in of_services.values() for one in some)]
        for_all = bool(needing(Effect.NEW_WORKERS, of_server))
        self._need_workers = {
            name for name in self._kept if for_all or needing(Effect.NEW_WORKERS, of_services.get(name, ()))
        }

    def _changes(self, before: Mapping[str, ServeOptions]) -> tuple[list[Change], Mapping[str, list[Change]]]:
        """Return the changes of the server, and of each of several services."""
        running, old, new = self._running, self._running.options, self._options
        of_server = renewed(running.credentials.contents, self._credentials.contents)
        of_workers = {
            name: renewed(running.services[name].credentials.contents, read.contents)
            for name, read in self._of_workers.items()
        }
        if ONLY in before and ONLY in self._services:
            return changes_between(old, new, renewed=[*of_server, *of_workers[ONLY]]), {}
        changes = changes_of_server(old, new, renewed=of_server)
        if ONLY in before or ONLY in self._services:
            old_names, new_names = (", ".join(one) or _UNNAMED for one in (before, self._services))
            changes.append(Change("services", old_names, new_names, Effect.RESTART))
            return changes, {}
        return changes, changes_of_services(before, self._services, renewed=of_workers)

    @property
    def services(self) -> Collection[str]:
        """The names of the services after the change."""
        return self._services.keys()

    async def check(self) -> None:
        """Check that the interpreters and GPUs that services have not used yet are there.

        Raises:
            WrongUsage: if one is missing.
        """
        running = {name: one.options for name, one in self._running.services.items()}
        # It may wait for other processes, but requests must not.
        await asyncio.to_thread(require_resources, self._services, running=running, warn=log.warning)

    async def wake(self, renewed: Collection[str]) -> None:
        """Start a worker of each service that is asleep, if its workers must be replaced."""
        for name in self._kept:
            if name in renewed or name in self._need_workers:
                await self._running.services[name].scaling.wake()

    def needs_workers(self, renewed: Collection[str]) -> bool:
        """Return whether workers must be replaced or started; those of ``renewed`` services are replaced."""
        return bool(self._replaced(renewed) or self._added)

    def _replaced(self, renewed: Collection[str]) -> list[str]:
        """Return the services whose workers are replaced."""
        wanted = [name for name in self._kept if name in renewed or name in self._need_workers]
        replaced = [name for name in wanted if self._running.services[name].supervisor.workers]
        # Without workers and without changes, the supervisor says why there is nothing to do.
        return replaced if replaced or self.changes else wanted

    async def replace(self, renewed: Collection[str]) -> None:
        """Apply the settings, with new workers where they are needed, and of ``renewed`` services.

        Raises:
            ReplacementFailed: if that is impossible; nothing has changed then.
            ValueError: if a service cannot be served with them; nothing has changed then.
        """
        async with AsyncExitStack() as stack:
            standbys = await self._stand_by(self._replaced(renewed), stack)
            added = await self._start_added(stack)
            await self._withdraw_apis(standbys, stack)
            # From here on, nothing is awaited: all changes are one.
            for name, change in self._prepare_all(standbys).items():
                served = self._running.services[name].served
                if name in standbys:
                    standbys[name].take_over(partial(served.take_over, change=change))
                else:
                    served.change(change)
            self._adopt(added)

    async def apply(self) -> None:
        """Apply the settings, and keep the workers; raises ValueError as :meth:`replace`."""
        for name, change in self._prepare_all({}).items():
            self._running.services[name].served.change(change)
        self._adopt({})

    async def settle(self) -> None:
        """Stop the removed services, and start or stop workers until their numbers are in their ranges."""
        await asyncio.gather(*(self._stop(service) for service in list(self._running.leaving)))
        for name in self._kept:
            least, most = self._services[name].worker_count
            if most:
                scaling = self._running.services[name].scaling
                scaling.idle_after_s = self._services[name].idle_after
                await scaling.change_bounds(least, most)

    async def _stand_by(self, names: Sequence[str], stack: AsyncExitStack) -> dict[str, Standbys]:
        """Return standbys for all workers of these services; unless they take over, the stack ends them."""

        async def stand_by(name: str) -> Standbys:
            service = self._running.services[name]
            replacing = service.supervisor.replacing_all(start=service.starter_with(self._services[name]))
            try:
                return await stack.enter_async_context(replacing)
            except ReplacementFailed as error:
                raise ReplacementFailed(about(name, error)) from None

        waiting = [asyncio.create_task(stand_by(name)) for name in names]
        try:
            return dict(zip(names, await asyncio.gather(*waiting), strict=True))
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _start_added(self, stack: AsyncExitStack) -> dict[str, RunningService]:
        """Return the services that are added, each with a ready worker.

        Unless they are adopted, they end with ``stack``.
        """
        added: dict[str, RunningService] = {}
        running = self._running

        async def undo() -> None:
            for name, service in added.items():
                if running.services.get(name) is not service:
                    await running.gateway.remove(service.served, timeout_s=self._options.drain_timeout)
                    await service.close()

        stack.push_async_callback(undo)
        for name in self._added:
            with _failed_start_of(name):
                added[name] = await RunningService.open(name, self._services[name], running)
            added[name].served.view.is_in_force = False
            added[name].start()
        for name, service in added.items():
            with _failed_start_of(name):
                await service.first_ready()
        return added

    async def _stop(self, service: RunningService) -> None:
        await self._running.gateway.remove(service.served, timeout_s=self._options.drain_timeout)
        await service.close()
        self._running.leaving.remove(service)

    def _prepare_all(self, standbys: Mapping[str, Standbys]) -> dict[str, ServiceChange]:
        """Return the changes of the services that stay."""
        changes = {name: self._prepare(name, standbys.get(name)) for name in self._kept}
        prepared = {name: one.prepared for name, one in changes.items() if one.prepared is not None}
        check_together({name: one.offer for name, one in prepared.items()})
        return changes

    def _prepare(self, name: str, standbys: Standbys | None) -> ServiceChange:
        """Return the change of a service, with the standbys of its workers if there are any."""
        service, settings = self._running.services[name], self._settings(name)
        served = service.served
        try:
            self._starters[name] = service.starter_with(self._services[name])
            if standbys is None:
                return served.prepare(settings)
            return served.prepare_take_over(standbys.launches, settings)
        except ValueError as error:
            raise ValueError(about(name, error)) from None

    async def _withdraw_apis(self, standbys: Mapping[str, Standbys], stack: AsyncExitStack) -> None:
        """Let the old workers answer what is queued for APIs that the new ones lack.

        Raises:
            ValueError: if the change is impossible anyway.
        """
        withdrawing = []
        for name, change in self._prepare_all(standbys).items():
            if change.removed:
                served = self._running.services[name].served
                stack.callback(served.restore)
                withdrawing.append(served.withdraw(change.removed, timeout_s=self._options.drain_timeout))
        await asyncio.gather(*withdrawing)

    def _settings(self, name: str) -> GatewaySettings:
        return self._running.settings(self._services[name], self._credentials.keys)

    def _adopt(self, added: Mapping[str, RunningService]) -> None:
        """Apply the settings that clients of the services do not see; this cannot fail."""
        running, options = self._running, self._options
        before, running.options, running.credentials = running.options, options, self._credentials
        running.leaving += [running.services.pop(name) for name in self._removed]
        running.services.update(added)
        for service in added.values():
            service.served.view.is_in_force = True
        for name in self._kept:
            service, own = running.services[name], self._services[name]
            service.options = own
            service.renew(self._of_workers[name])
            if service.kept is not None:
                service.kept.options = own
            service.supervisor.start_by(self._starters[name])
            service.recycler.most_batches = own.max_batches_per_worker
            service.recycler.most_bytes = own.max_worker_bytes
        gateway = running.gateway
        gateway.change(running.settings(options, self._credentials.keys))
        gateway.front_end.readiness_changed()
        if running.servers is not None:
            running.servers.change(self._credentials, options)
        if (options.log_level, options.log_format) != (before.log_level, before.log_format):
            log_to_terminal(options.log_level, options.log_format, again=True)
        if self.changes:
            names = [change.name for change in self.changes]
            gateway.front_end.settings_change = SettingsChange(time=time.time(), names=names)


@contextmanager
def _failed_start_of(name: str) -> Iterator[None]:
    """Add the name of a service to errors of the block, as those of a reload."""
    try:
        with errors_of(name):
            yield
    except (OSError, ReplacementFailed) as error:
        raise ReplacementFailed(f"{name} does not start: {error}") from None
