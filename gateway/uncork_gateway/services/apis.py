"""The APIs of a service: their settings, routes and models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uncork_dispatcher import ApiRules
from uncork_gateway.batching import Batching
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import Dialect, Native
from uncork_gateway.pages.models.metadata import ModelSource, dialects_of, models_of
from uncork_gateway.pages.models.outputs import Outputs
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.requests.api_route import ApiRoute
from uncork_gateway.requests.api_target import ApiTarget
from uncork_gateway.requests.stream_route import StreamRoute
from uncork_gateway.services.catalogue import Catalogue, Offer
from uncork_gateway.services.paths import in_force, paths_by_name
from uncork_gateway.settings import ServerSettings
from uncork_gateway.versions import Candidate, ServiceName
from uncork_workers.wire.overrides import Override
from uncork_workers.wire.schema import ApiDescription, ServiceDescription, rounded_cost

if TYPE_CHECKING:
    from uncork_gateway.grpc.service import ServedModel

_QUEUE_BATCHES = 20
_QUEUE_REQUESTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(ServerSettings):
    """The settings of a gateway.

    An API with a cost may queue ``max_queue_rows`` of cost, or 20 full batches if that is more, in 20 000
    requests or as many as rows.

    Attributes:
        overrides: replace the APIs' own settings; the last one of an argument wins.
        weight: its share of the requests that name no version, relative to the other versions of the
            service; None: the highest version that is ready answers them.
        shadow: whether it gets copies of the requests to the other versions, whose answers are dropped.
        own_routes: whether the APIs have the routes of their code, besides those below ``/<service>/``.
        workers: how many workers the supervisor starts; they have the lowest indexes.
        warmup_seconds: most seconds that workers on TCP spend on their warm-up.
    """

    overrides: Sequence[Override] = ()
    own_routes: bool = True
    weight: float | None = None
    shadow: bool = False
    workers: int = 1
    warmup_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A service that can be put in force, with its settings.

    Attributes:
        service: as the workers describe it, without the overrides.
        offer: what clients see of it.
        rules: of the dispatcher, by API.
    """

    service: ServiceDescription
    offer: Offer
    rules: Mapping[str, ApiRules]


class Apis:
    """The APIs of a service, in force.

    Attributes:
        service: as the workers describe it, without the overrides; None before the first description.
        in_force: the APIs by name, with the overrides.
        outputs: what is known of the outputs of each API; an API that streams has none.

    Args:
        name: the name that the service is served under; None: that of its class, in lower case.
        unready: returns why the service cannot be used now; empty if it can.
    """

    def __init__(
        self, batching: Batching, catalogue: Catalogue, *, name: str | None, unready: Callable[[], str]
    ) -> None:
        self._batching = batching
        self._catalogue = catalogue
        self._name = name
        self._source = ModelSource(batching.metrics.api, unready)
        self.service: ServiceDescription | None = None
        self.in_force: dict[str, ApiDescription] = {}
        self.outputs: dict[str, Outputs] = {}
        self._offer: Offer | None = None
        self._rules: Mapping[str, ApiRules] = {}
        self._routes: list[ApiTarget] = []
        self._old_routes: list[ApiTarget] = []

    def prepare(
        self, service: ServiceDescription, settings: GatewaySettings, *, same_code: bool = False
    ) -> Prepared:
        """Return what :meth:`put_in_force` needs to serve ``service`` with these settings.

        With the same code, what is known of the outputs stays.

        Raises:
            ValueError: if it cannot be served.
        """
        text = self._name or service.name.lower()
        name = ServiceName.read(text)
        effective = in_force(text, service, settings.overrides, own_routes=settings.own_routes)
        models = models_of(
            name.name,
            effective,
            self._source,
            version=name.version,
            outputs=self.outputs if same_code else {},
            limits=settings.limits,
        )
        native = {
            api.name: self._route(api, _native(api, settings.limits), settings) for api in effective.apis
        }
        of_models = {
            path: self._route(api, dialect, settings)
            for model in models.values()
            for path, api, dialect in dialects_of(model)
        }
        grpc = self._catalogue.grpc
        over_grpc: Mapping[str, ServedModel] = {}
        if grpc is not None:
            over_grpc = grpc.prepare(name, effective, models, source=self._source, batching=self._batching)
        offer = Offer(
            name=name,
            candidate=Candidate(
                version=name.version,
                weight=settings.weight,
                shadow=settings.shadow,
                is_ready=lambda: not self._source.unready(),
            ),
            service=effective,
            own={api.route: native[api.name] for api in effective.apis},
            by_name={path: native[api] for path, api in paths_by_name(text, effective).items()},
            models=models,
            of_models=of_models,
            over_grpc=over_grpc,
            prefix=self._batching.prefix,
            shadow=self._batching.shadow,
        )
        # Its former offer, perhaps of a class with another name, makes room.
        self._catalogue.check({text, self._batching.name}, offer)
        rules = {api.name: _rules(api, settings) for api in effective.apis}
        return Prepared(service=service, offer=offer, rules=rules)

    def put_in_force(self, prepared: Prepared) -> None:
        """Serve a service; this cannot fail."""
        service, offer = prepared.service, prepared.offer
        for name, one in prepared.rules.items():
            # Setting the same rules again would repeat the warning about a goal that is out of reach.
            if service != self.service or one != self._rules.get(name):
                self._batching.dispatcher.set_api(one)
        self._rules = prepared.rules
        self.in_force = {api.name: api for api in offer.service.apis}
        self._old_routes += self._routes
        self._routes = [*offer.routes.values()]
        self._routes += [route for each in offer.over_grpc.values() for route in (each.infer, each.predict)]
        self.outputs = {model.api.name: model.outputs for model in offer.models.values()}
        self.service = service
        if self._offer is not None:
            # The class may have another name now.
            self._catalogue.remove(self._batching.name)
        self._batching.name = self._name or service.name.lower()
        self._offer = offer
        self._catalogue.put(self._batching.name, offer)
        self.forget_removed()

    def withdraw(self, apis: Collection[str]) -> None:
        """Accept requests to all APIs but these; the service stays in force."""
        if self._offer is not None:
            self._catalogue.put(self._batching.name, self._offer.without(apis) if apis else self._offer)

    def forget_removed(self) -> None:
        """Drop the queues and counts of the APIs that reloads have removed, once they have no requests."""
        removed = {route.api for route in self._old_routes} - self.in_force.keys()
        forgotten = {name for name in removed if self._batching.forget_api(name)}
        for route in self._old_routes:
            if route.api in forgotten:
                route.remove()
        self._old_routes = [route for route in self._old_routes if route.api in removed - forgotten]

    def _route(self, api: ApiDescription, dialect: Dialect, settings: GatewaySettings) -> ApiRoute:
        batching = self._batching
        return (StreamRoute if api.streams else ApiRoute)(
            api.name,
            dialect=dialect,
            dispatcher=batching.dispatcher,
            tally=batching.metrics.api(api.name),
            max_body_bytes=settings.max_body_bytes,
            batch_headers=batching.batch_headers,
            fair_by=settings.fair_by,
        )


def _rules(api: ApiDescription, limits: GatewaySettings) -> ApiRules:
    settings = api.settings
    max_queue_rows = limits.max_queue_rows
    sizes: tuple[int, ...] = ()
    if settings.cost is not None:
        sizes = settings.allowed_batch_sizes or ()
        # The setting knows nothing of an API's unit of cost, but a queue must fill batches.
        max_queue_rows = max(max_queue_rows, _QUEUE_BATCHES * settings.mb_max_batch_size)
    return ApiRules(
        name=api.name,
        goal_s=settings.mb_max_latency / 1000,
        max_batch_rows=settings.limit_rows,
        max_batch_bytes=settings.mb_max_batch_bytes,
        policy=settings.policy,
        timeout_s=settings.timeout,
        idempotent=settings.idempotent,
        allowed_lengths=tuple(map(rounded_cost, settings.allowed_lengths or ())),
        allowed_batch_sizes=sizes,
        max_queue_rows=max_queue_rows,
        max_queue_requests=max(_QUEUE_REQUESTS, limits.max_queue_rows),
        max_queue_bytes=limits.max_queue_bytes,
        fair=limits.fair_by is not None,
    )


def _native(api: ApiDescription, limits: Limits) -> Native:
    codec = make_codec(api.input, api.settings.cost, limits)
    return Native(codec, offers=api.offers, errors=api.errors)
