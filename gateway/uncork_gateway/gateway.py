"""The gateway: several services behind one front end."""

from __future__ import annotations

import asyncio

from uncork_gateway.front_end import FrontEnd
from uncork_gateway.repository import Repository, RepositoryAccess
from uncork_gateway.services.apis import GatewaySettings
from uncork_gateway.services.catalogue import Catalogue
from uncork_gateway.services.served_service import ServedService
from uncork_gateway.services.service_pages import ServicePages
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_gateway.settings import ServerSettings


class Gateway:
    """Services behind one front end. Create it inside a running event loop.

    Attributes:
        services: the services, in the order of :meth:`add`.
        repository: loads and unloads services for clients; None if they cannot.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.front_end = FrontEnd(settings)
        self.services: list[ServedService] = []
        self.catalogue = Catalogue(
            self.front_end.routes, order=lambda: [one.batching.name for one in self.services]
        )
        self.repository: Repository | None = None
        if settings.grpc:
            from uncork_gateway.grpc.service import GrpcService  # needs an extra

            access = RepositoryAccess(
                lambda: self.repository, is_allowed=lambda: self.front_end.settings.trusts_clients
            )
            front_end = self.front_end
            grpc = self.catalogue.grpc = GrpcService(
                access,
                missing=self.missing,
                unready=front_end.unready,
                readiness=front_end.readiness,
                keys=lambda: front_end.settings.keys,
                statistics=not settings.admin,
                fair_by=settings.fair_by,
            )
            front_end.mount_grpc(grpc.open_call, close=grpc.close, keys_changed=grpc.keys_changed)
        self.front_end.mount(
            ServicePages(
                self.front_end, self.catalogue, missing=self.missing, repository=lambda: self.repository
            ).pages
        )

    def add(
        self, settings: GatewaySettings, supervisor: SupervisorActions, *, name: str | None = None
    ) -> ServedService:
        """Add a service, which is served as soon as a worker has described it; see :class:`ServedService`.

        A name is required if there are several services.
        """
        service = ServedService(self.front_end, self.catalogue, settings, supervisor, name=name)
        self.services.append(service)
        self.front_end.add(service.batching)
        return service

    async def remove(self, service: ServedService, *, timeout_s: float | None = None) -> None:
        """Remove a service: finish its accepted requests, and disconnect its workers.

        Requests unfinished after ``timeout_s`` are refused.
        """
        self.services.remove(service)
        service.events.described.cancel()
        self.catalogue.remove(service.batching.name)
        service.batching.metrics.withdraw()
        dispatcher = service.batching.dispatcher
        draining = asyncio.create_task(dispatcher.drain())
        await asyncio.wait([draining], timeout=timeout_s)
        if not draining.done():
            dispatcher.give_up()
        await service.close()
        self.front_end.remove(service.batching)
        draining.cancel()

    def change(self, settings: ServerSettings) -> None:
        """Apply new settings of the front end; see :meth:`FrontEnd.change`."""
        self.front_end.change(settings)
        if self.catalogue.grpc is not None:
            self.catalogue.grpc.change(fair_by=settings.fair_by)

    async def close(self) -> None:
        """Disconnect the workers of all services, and close the front end."""
        for service in self.services:
            await service.close()
        self.front_end.close()

    def missing(self) -> str:
        """Return why some services are not described yet; empty once every service is."""
        missing = {
            one.batching.name: one.view.not_ready_reason for one in self.services if one.service is None
        }
        if len(self.services) == 1:
            return "".join(missing.values())
        return "; ".join(f"{name}: {reason}" for name, reason in missing.items())
