"""The HTTP side of a gateway or a proxy: listener, routes, metrics, pages, drain."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import ASGIApp

from uncork_gateway.batching import Batching
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.interfaces import BodyPool, Handler
from uncork_gateway.pages.plain_pages import Pages
from uncork_gateway.pages.status.document import SettingsChange
from uncork_gateway.pages.status.service_status import StatusBuilder
from uncork_gateway.readiness import Readiness
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.exposition import Collect, Exposition
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.versions import ServiceName

NONE_SERVED = "no service is served"


class FrontEnd:
    """The HTTP side of services, or of the servers behind a proxy.

    Create it inside a running event loop, and call :meth:`mount` before the first connection.

    Args:
        resolve: finds the handler of a POST request whose path is not in the table.

    Attributes:
        app: serves all requests without a handler.
        admin_app: serves operators on a separate listener; None if ``app`` serves them.
        open_call: opens the calls of gRPC clients; None without gRPC.
        services: the batching of each service; a proxy's servers count as one service.
        ready: set once each service present at the start can run a batch.
        draining: True if the server is stopping; ``/readyz`` then returns 503.
        readiness: notifies of changes of :meth:`unready` and of the models.
    """

    app: ASGIApp
    admin_app: ASGIApp | None
    open_call: OpenCall | None = None

    def __init__(
        self,
        settings: ServerSettings,
        *,
        resolve: Callable[[bytes], Handler[Any] | None] | None = None,
    ) -> None:
        self.routes = RouteTable(resolve)
        self.listener = ListenerContext(pool=BodyPool(0), traces=settings.traces)
        self._keys_changed: Callable[[], object] = lambda: None
        self.change(settings)
        self.services: list[Batching] = []
        self.exposition = Exposition(self._collectors)
        self.ready = asyncio.Event()
        self.draining = False
        self.settings_change: SettingsChange | None = None
        self.readiness = Readiness()
        self.batches = FinishedBatches()
        self.status_builder = StatusBuilder(
            self, lambda: [service.status for service in self.services], self.batches
        )
        self._close_pages: Callable[[], object] = lambda: None
        self._close_grpc: Callable[[], object] = lambda: None

    def add(self, service: Batching) -> None:
        """Show a service on the pages; :meth:`close` will stop its dispatcher."""
        self.services.append(service)

    def remove(self, service: Batching) -> None:
        """Remove a service from the pages, and stop its dispatcher. It must have no requests left."""
        self.services.remove(service)
        service.dispatcher.close()
        self.readiness_changed()

    def readiness_changed(self) -> None:
        """Check again whether the services are ready, and notify subscribers."""
        if self.services and all(service.ready.is_set() for service in self.services):
            self.ready.set()
        self.readiness.may_have_changed()

    def change(self, settings: ServerSettings) -> None:
        """Apply new settings, except for ``admin``, ``grpc`` and ``traces``, which stay unchanged.

        Open connections keep their limits on clients.
        """
        self.settings = settings
        listener = self.listener
        listener.limits, listener.keys = settings.clients, settings.keys
        listener.origins = settings.origins
        listener.access_log = settings.access_log
        listener.pool.max_bytes = BodyPool.for_bodies(settings.max_body_bytes).max_bytes
        # Requests with a known head are accepted without another look at their key and origin.
        self.routes.forget_heads()
        self._keys_changed()

    def mount(self, pages: Pages) -> None:
        """Serve the pages (health, status, metrics and others that run no batches), until :meth:`close`."""
        self.app, self.admin_app, self._close_pages = pages.app, pages.admin_app, pages.close
        pages.start()

    def mount_grpc(
        self, open_call: OpenCall, *, close: Callable[[], object], keys_changed: Callable[[], object]
    ) -> None:
        """Serve gRPC clients.

        ``close`` ends the calls that clients may keep open without a request, and ``keys_changed`` all whose
        keys are no longer accepted.
        """
        self.open_call, self._close_grpc, self._keys_changed = open_call, close, keys_changed

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """Create an HTTP connection; the factory for uvicorn."""
        return HttpProtocol(self.routes, self.listener, **uvicorn)

    # What the pages show

    def server(self) -> str | None:
        """Return the name of the service, as on the pages; None until it is known."""
        return self.services[0].served.server if len(self.services) == 1 else "gateway"

    def unready(self, service: str | None = None, *, in_full: bool = True) -> str:
        """Return why all services, or the named one, are not ready; empty if they are.

        Until all services have been ready, the server waits for each of them; from then on, one is enough.
        One version of a service is enough, but no shadow, unless ``service`` names one, as in ``digits@2``.

        With ``in_full``, the text names services, and may quote exceptions of ``setup`` or URLs of servers.

        Raises:
            KeyError: if the named service does not exist.
        """
        if service is None:
            is_enough = self.ready.is_set()
            services = _answering(self.services) if is_enough else self.services
            return self._unready(services, one_is_enough=is_enough, in_full=in_full)
        wanted = ServiceName.read(service)
        names = {one: ServiceName.read(one.name) for one in self.services}
        named = [
            one
            for one, name in names.items()
            if name == wanted or ("@" not in service and name.name == service)
        ]
        if not named:
            raise KeyError(service)
        return self._unready(_answering(named), one_is_enough=True, in_full=in_full)

    def unready_of(self, service: Batching) -> str:
        """Return why a service is not ready; empty if it is."""
        return self._unready([service], one_is_enough=True, in_full=True)

    def _unready(self, services: Sequence[Batching], *, one_is_enough: bool, in_full: bool) -> str:
        if self.draining:
            return "the server is shutting down"
        missing = [one for one in services if not one.served.any_ready]
        if services and (not missing or (one_is_enough and len(missing) < len(services))):
            return ""
        reasons = {
            one.name: one.served.not_ready_reason if in_full else one.served.not_ready for one in missing
        }
        if len(services) == 1 or not in_full:
            return next(iter(reasons.values()), NONE_SERVED)
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or NONE_SERVED

    def _collectors(self) -> list[tuple[str, list[Collect]]]:
        """Return the collectors of each service by its name, without what they no longer serve."""
        for service in self.services:
            service.served.expire()
        return [(one.name, one.collectors) for one in self.services]

    # Stopping

    def retire(self) -> None:
        """Report not ready, and close each connection after its response, while still accepting requests."""
        self.draining = self.listener.retiring = True
        self.readiness.may_have_changed()

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have responses.

        Each connection closes after its pending responses.
        """
        self.retire()
        self.listener.closing = True
        await asyncio.gather(*(service.dispatcher.drain() for service in self.services))
        self._end_streams()

    def unanswered(self) -> int:
        """Return the number of requests queued or running, except those that pass through the proxy."""
        return sum(service.dispatcher.unanswered for service in self.services)

    def give_up(self) -> None:
        """Refuse all requests that are still queued or running."""
        for service in self.services:
            service.dispatcher.give_up()
        self._end_streams()

    def _end_streams(self) -> None:
        self._close_pages()
        self._close_grpc()

    def close(self) -> None:
        """Stop the dispatchers, and the pages' background work."""
        self._end_streams()
        for service in self.services:
            service.dispatcher.close()


def _answering(services: Sequence[Batching]) -> Sequence[Batching]:
    """Return the services without shadows, which answer nobody; a shadow stays if it has no other version."""
    names = {ServiceName.read(one.name).name for one in services if not one.is_shadow}
    return [one for one in services if not (one.is_shadow and ServiceName.read(one.name).name in names)]
