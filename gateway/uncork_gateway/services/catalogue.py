"""The routes and models that a gateway's services offer to clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import structs

from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.pages.models.metadata import Model, ModelVersions
from uncork_gateway.requests.api_route import ApiRoute
from uncork_gateway.requests.api_target import ApiTarget
from uncork_gateway.requests.shadow import Shadow, ShadowTally
from uncork_gateway.services.paths import Paths, check_paths
from uncork_gateway.versions import Candidate, Option, ServiceName, VersionedRoute
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

if TYPE_CHECKING:
    from uncork_gateway.grpc.service import GrpcService, ServedModel

log = logging.getLogger("uncork.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The routes and models of one service.

    Attributes:
        service: the service's description, with overrides.
        own: the routes that the APIs' code defines, by path.
        by_name: the routes below ``/<service>/``, by path.
        models: the models by name; ``of_models``: their routes by path.
        over_grpc: the models for gRPC clients; empty without gRPC.
        shadow: counts the copied requests by outcome.
        prefix: the prefix of its APIs' ids.
    """

    name: ServiceName
    candidate: Candidate
    service: ServiceDescription
    own: Mapping[str, ApiRoute]
    by_name: Mapping[str, ApiRoute]
    models: Mapping[str, Model]
    of_models: Mapping[str, ApiRoute]
    over_grpc: Mapping[str, ServedModel] = field(default_factory=dict)
    prefix: str = ""
    shadow: ShadowTally

    def without(self, apis: Collection[str]) -> Offer:
        """Return this offer without some of its APIs."""

        def rest(routes: Mapping[str, ApiRoute]) -> dict[str, ApiRoute]:
            return {path: route for path, route in routes.items() if route.api not in apis}

        models = {name: one for name, one in self.models.items() if one.api.name not in apis}
        for name, one in models.items():
            if one.explainer is not None and one.explainer.name in apis:
                models[name] = one._replace(explainer=None)
        return replace(
            self,
            service=structs.replace(
                self.service, apis=[api for api in self.service.apis if api.name not in apis]
            ),
            own=rest(self.own),
            by_name=rest(self.by_name),
            models=models,
            of_models=rest(self.of_models),
            over_grpc={name: one for name, one in self.over_grpc.items() if one.model.api.name not in apis},
        )

    @property
    def routes(self) -> dict[str, ApiRoute]:
        """All routes by path. If two share a path, the route in the API's code wins."""
        return {**self.by_name, **self.own, **self.of_models}


class Catalogue:
    """The offers of all services, which have no routes in common.

    Args:
        order: returns the names of the services, in the order in which pages list them.

    Attributes:
        models: the models of all services; a new mapping after each change.
        grpc: serves the models to gRPC clients; None without gRPC.
    """

    def __init__(self, routes: RouteTable, *, order: Callable[[], Sequence[str]]) -> None:
        self._routes = routes
        self._order = order
        self.offers: dict[str, Offer] = {}
        self.models: ModelVersions = {}
        self.grpc: GrpcService | None = None
        self._unlike: set[tuple[str, str, str]] = set()

    def check(self, names: Collection[str], offer: Offer) -> None:
        """Check that an offer does not conflict with those of other services, except ``names``.

        Raises:
            ValueError: if two offers have a route in common.
        """
        _check(offer, {one: its for one, its in self.offers.items() if one not in names})

    def put(self, name: str, offer: Offer) -> None:
        """Replace a service's offer; ignore the offer of a removed service.

        A worker may still describe a removed service while its last requests run.
        """
        if name in self._order():
            self.offers[name] = offer
            self._changed()

    def remove(self, name: str) -> None:
        """Remove a service; requests that have begun keep their routes."""
        if self.offers.pop(name, None) is not None:
            self._changed()

    def _changed(self) -> None:
        # Services are described in the order in which their workers are ready.
        ranks = {name: rank for rank, name in enumerate(self._order())}
        self.offers = dict(sorted(self.offers.items(), key=lambda item: ranks[item[0]]))
        self._set_shadows()
        offers = sorted(self.offers.values(), key=lambda offer: int(offer.name.version))
        own, others = (
            _by_version((offer.candidate, routes) for offer, routes in pairs)
            # Pages list them in this order.
            for pairs in ([(one, one.own) for one in offers], [(one, one.routes) for one in offers])
        )
        self._routes.replace(
            {
                path.encode(): options[0][1] if len(options) == 1 else VersionedRoute(options)
                for path, options in {**own, **others}.items()
            }
        )
        models = _by_version((offer.candidate, offer.models) for offer in offers)
        self.models = {name: {one.version: one for _, one in some} for name, some in models.items()}
        if self.grpc is not None:
            self.grpc.put_in_force(_by_version((offer.candidate, offer.over_grpc) for offer in offers))

    def _set_shadows(self) -> None:
        """Copy the requests to each API to the versions that are shadows; log which cannot read them."""
        unlike: set[tuple[str, str, str]] = set()
        for offer in self.offers.values():
            shadows = [
                one
                for one in self.offers.values()
                if one.candidate.shadow and one.name.name == offer.name.name and not offer.candidate.shadow
            ]
            targets: list[ApiTarget] = [*offer.routes.values()]
            targets += [route for each in offer.over_grpc.values() for route in (each.infer, each.predict)]
            of_apis = {api.name: [*_shadows_of(api, shadows, unlike)] for api in offer.service.apis}
            for target in targets:
                target.shadows = of_apis[target.api]
        for version in sorted(unlike - self._unlike):
            log.warning(
                "version %s of %s gets no copies of requests to %s: its input, cost, group_by, headers, task "
                "or media types differ",
                *version,
            )
        self._unlike = unlike


def check_together(offers: Mapping[str, Offer]) -> None:
    """Check that offers, by service, do not conflict with each other; see :meth:`Catalogue.check`."""
    for name, offer in offers.items():
        _check(offer, {one: its for one, its in offers.items() if one != name})


def _check(offer: Offer, others: Mapping[str, Offer]) -> None:
    paths = {one: Paths(its.own, its.by_name) for one, its in others.items()}
    check_paths(offer.name.name, Paths(offer.own, offer.by_name), paths)


def _shadows_of(
    api: ApiDescription, offers: Sequence[Offer], unlike: set[tuple[str, str, str]]
) -> Iterator[Shadow]:
    """Yield the copiers for an API's requests; none for streams, or versions that cannot read them.

    Add the latter to ``unlike``: version, service and API.
    """
    for offer in offers:
        targets = {target.api: target for target in offer.own.values()}
        for other in offer.service.apis:
            if other.name != api.name or api.streams or other.streams:
                continue
            if (other.contract, other.settings.cost) == (api.contract, api.settings.cost):
                yield Shadow(api.name, targets[api.name].dispatcher, offer.shadow)
            else:
                unlike.add((offer.name.version, offer.name.name, api.name))


def _by_version(
    offers: Iterable[tuple[Candidate, Mapping[str, Option]]],
) -> dict[str, list[tuple[Candidate, Option]]]:
    """Return the options of all versions by name, in the versions' order."""
    found: dict[str, list[tuple[Candidate, Option]]] = {}
    for candidate, options in offers:
        for name, option in options.items():
            found.setdefault(name, []).append((candidate, option))
    return found
