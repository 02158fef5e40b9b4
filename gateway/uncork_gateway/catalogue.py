"""What the services of a gateway offer to clients: routes and models."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import structs

from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.requests.api_route import ApiRoute
from uncork_workers.wire.overrides import Override, apply_overrides
from uncork_workers.wire.schema import ApiDescription, ServiceDescription, is_reserved

if TYPE_CHECKING:
    from uncork_gateway.grpc.apis import ServedModel
    from uncork_gateway.grpc.service import GrpcService


class Paths(Protocol):
    """The paths of a service's APIs."""

    @property
    def own(self) -> Collection[str]:
        """The routes of the author."""
        ...

    @property
    def by_name(self) -> Collection[str]:
        """Those below ``/<service>/``."""
        ...


def in_force(
    name: str, service: ServiceDescription, overrides: Sequence[Override], *, own_routes: bool
) -> ServiceDescription:
    """Return a service as clients see it under a name; without ``own_routes``, its APIs are below that.

    Raises:
        DefinitionError: if an override is wrong.
    """
    effective = apply_overrides(service, overrides)
    if own_routes:
        return effective
    apis = [structs.replace(api, route=f"/{name}/{api.name}") for api in effective.apis]
    return structs.replace(effective, apis=apis)


class DescribedPaths(NamedTuple):
    """The paths of a service that is not served yet."""

    own: Collection[str]
    by_name: Collection[str]


NO_PATHS = DescribedPaths((), ())


def paths_of(name: str, service: ServiceDescription) -> DescribedPaths:
    """Return the paths of a service under a name; see :func:`in_force`."""
    return DescribedPaths([api.route for api in service.apis], paths_by_name(name, service))


def paths_by_name(name: str, service: ServiceDescription) -> dict[str, str]:
    """Return the paths below ``/<service>/``, each with the name of its API."""
    paths = {f"/{name}/{api.name}": api.name for api in service.apis}
    return {path: api for path, api in paths.items() if not is_reserved(path)}


def check_paths(name: str, mine: Paths, others: Mapping[str, Paths]) -> None:
    """Check that a service has no path in common with others.

    Raises:
        ValueError: if it has.
    """
    for other, theirs in others.items():
        for path in mine.own:
            if path in theirs.own:
                raise ValueError(
                    f"the services {other} and {name} both serve POST {path}; set own_routes = false for "
                    f"one of them, so that its APIs are served below /{other}/ or /{name}/ only, or "
                    "change route= in its code"
                )
        for own, by_name, owner in (
            (mine.own, theirs.by_name, other),
            (theirs.own, mine.by_name, name),
        ):
            for path in own:
                if path in by_name:
                    raise ValueError(
                        f"an API has the route {path}, which belongs to the service {owner}; change route= "
                        "in its code"
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one service offers.

    Attributes:
        service: with the overrides.
        own: the routes of its APIs, by path.
        by_name: the routes below ``/<service>/``, by path.
        models: by name, and ``of_models``: their routes by path.
        over_grpc: the models that gRPC clients see; empty if there are none.
        prefix: of the ids of its APIs.
    """

    service: ServiceDescription
    own: Mapping[str, ApiRoute]
    by_name: Mapping[str, ApiRoute]
    models: Mapping[str, Model]
    of_models: Mapping[str, ApiRoute]
    over_grpc: Mapping[str, ServedModel] = field(default_factory=dict)
    prefix: str = ""

    def id_of(self, api: ApiDescription) -> str:
        """Return the id of an API on the pages."""
        return self.prefix + api.name

    def without(self, apis: Collection[str]) -> Offer:
        """Return this offer without some of its APIs."""

        def rest(routes: Mapping[str, ApiRoute]) -> dict[str, ApiRoute]:
            return {path: route for path, route in routes.items() if route.api not in apis}

        return replace(
            self,
            service=structs.replace(
                self.service, apis=[api for api in self.service.apis if api.name not in apis]
            ),
            own=rest(self.own),
            by_name=rest(self.by_name),
            models={name: one for name, one in self.models.items() if one.api.name not in apis},
            of_models=rest(self.of_models),
            over_grpc={name: one for name, one in self.over_grpc.items() if one.model.api.name not in apis},
        )

    @property
    def routes(self) -> dict[str, ApiRoute]:
        """All routes by path; where two have one path, that of the author counts."""
        return {**self.by_name, **self.own, **self.of_models}


class Catalogue:
    """The offers of all services; no two of them have a route in common.

    Attributes:
        offers: by the name of the service.
        models: of all services, by name; another mapping after each change.
        grpc: serves the models to gRPC clients; None if there are none.
    """

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self.offers: dict[str, Offer] = {}
        self.models: Mapping[str, Model] = {}
        self.grpc: GrpcService | None = None

    def check(self, name: str, offer: Offer) -> None:
        """Check that an offer can stand beside those of the other services.

        Raises:
            ValueError: if two have a route in common.
        """
        check_paths(name, offer, {other: theirs for other, theirs in self.offers.items() if other != name})

    def put(self, name: str, offer: Offer) -> None:
        """Serve an offer from now on, in place of the service's former one."""
        self.offers[name] = offer
        self._changed()

    def remove(self, name: str) -> None:
        """Serve a service no longer; requests that have begun keep their routes."""
        if self.offers.pop(name, None) is not None:
            self._changed()

    def _changed(self) -> None:
        offers = self.offers.values()
        # Pages list them in this order.
        own = {path: route for offer in offers for path, route in offer.own.items()}
        others = {path: route for offer in offers for path, route in offer.routes.items()}
        self._routes.replace({path.encode(): route for path, route in {**own, **others}.items()})
        self.models = {name: model for offer in offers for name, model in offer.models.items()}
        if self.grpc is not None:
            self.grpc.put_in_force({name: one for offer in offers for name, one in offer.over_grpc.items()})
