"""The APIs of a service: their settings, routes and models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uncork_dispatcher import ApiRules
from uncork_gateway.batching import Batching
from uncork_gateway.codecs import codec_of, grouping
from uncork_gateway.dialects import TEXT_MODELS, Dialect, Native
from uncork_gateway.pages.models.metadata import ModelSource, dialects_of, models_of
from uncork_gateway.pages.models.tensors import Outputs
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.requests.api_route import ApiRoute
from uncork_gateway.requests.stream_route import StreamRequest
from uncork_gateway.services.catalogue import Catalogue, Offer
from uncork_gateway.services.paths import in_force, paths_by_name
from uncork_gateway.settings import ServerSettings
from uncork_gateway.versions import Candidate, ServiceName
from uncork_workers.wire.costs import rounded_cost
from uncork_workers.wire.overrides import Override, check_reserved
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

if TYPE_CHECKING:
    from uncork_gateway.grpc.service import ServedModel

_QUEUE_BATCHES = 20
_QUEUE_REQUESTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(ServerSettings):
    """The settings of a gateway.

    An API with a cost may queue ``max_queue_rows`` units of cost, or 20 full batches if that is more, in at
    most 20 000 or ``max_queue_rows`` requests, whichever is more. Where a row costs its bytes,
    ``max_queue_bytes`` alone limits the cost.

    Attributes:
        overrides: replace the APIs' own settings; of several for one setting, the last wins.
        weight: the version's share of requests that name no version, relative to other versions; None: the
            highest ready version serves them.
        shadow: True if it only gets copies of other versions' requests, whose results are dropped.
        own_routes: True if APIs have the routes in their code, in addition to those below ``/<service>/``.
        workers: the number of workers that the supervisor starts; they have the lowest indexes.
        warmup_seconds: the most seconds that workers on TCP may spend on their warm-up.
    """

    overrides: Sequence[Override] = ()
    own_routes: bool = True
    weight: float | None = None
    shadow: bool = False
    workers: int = 1
    warmup_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checked service with its settings, which :meth:`Apis.put_in_force` can serve.

    Attributes:
        service: the workers' description, without overrides.
        offer: the routes and models for clients.
    """

    service: ServiceDescription
    offer: Offer
    rules: Mapping[str, ApiRules]


class Apis:
    """The current APIs of a service.

    Attributes:
        service: the workers' description, without overrides; None before the first description.
        in_force: the current APIs by name, with overrides.
        contracts: the contract of each current API.
        outputs: the known outputs of each API; an API that streams has none.

    Args:
        name: the name to serve it under; None: its class's name, in lower case.
        unready: returns why the service is not ready; empty if it is.
    """

    def __init__(
        self, batching: Batching, catalogue: Catalogue, *, name: str | None, unready: Callable[[], str]
    ) -> None:
        self._batching = batching
        self._catalogue = catalogue
        self._name = name
        self._source = ModelSource(batching.metrics.of_classes, unready)
        self.service: ServiceDescription | None = None
        self.in_force: dict[str, ApiDescription] = {}
        self.contracts: dict[str, int] = {}
        self.outputs: dict[str, Outputs] = {}
        self._offer: Offer | None = None
        self._rules: Mapping[str, ApiRules] = {}
        self._removed: set[str] = set()
        """The names of removed APIs that may still have requests."""

    def prepare(
        self, service: ServiceDescription, settings: GatewaySettings, *, same_code: bool = False
    ) -> Prepared:
        """Check a service with these settings, and return it prepared for :meth:`put_in_force`.

        With ``same_code``, the outputs known so far are kept.

        Raises:
            ValueError: if the service cannot be served.
        """
        text = self._name or service.name.lower()
        name = ServiceName.read(text)
        effective = in_force(text, service, settings.overrides, own_routes=settings.own_routes)
        check_reserved(effective, settings.workers)
        candidate = Candidate(
            version=name.version,
            weight=settings.weight,
            shadow=settings.shadow,
            is_ready=lambda: not self._source.unready(),
        )
        source = self._source._replace(candidate=candidate)
        models = models_of(
            name.name,
            effective,
            source,
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
            over_grpc = grpc.prepare(
                name,
                effective,
                models,
                source=source,
                batching=self._batching,
                limits=settings.limits,
            )
        offer = Offer(
            name=name,
            candidate=candidate,
            service=effective,
            own={path: native[api.name] for api in effective.apis for path in api.routes},
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
        """Serve a prepared service. This cannot fail."""
        service, offer = prepared.service, prepared.offer
        for name, one in prepared.rules.items():
            # Setting the same rules again would repeat the warning about a goal that is out of reach.
            if service != self.service or one != self._rules.get(name):
                self._batching.dispatcher.set_api(one)
        self._rules = prepared.rules
        for api in offer.service.apis:
            self._batching.metrics.set_classes(api.name, api.class_names)
            if (coalescing := self._batching.coalescing(api)) is not None:
                coalescing.start_over(prepared.rules[api.name])
        served = {api.name: api for api in offer.service.apis}
        self._removed = (self._removed | self.in_force.keys()) - served.keys()
        self.in_force = served
        self.contracts = {name: api.contract for name, api in served.items()}
        self.outputs = {model.api.name: model.outputs for model in offer.models.values()}
        self.service = service
        if self._offer is not None:
            # The class may have another name now.
            self._catalogue.remove(self._batching.name)
        self._batching.name = self._name or service.name.lower()
        self._batching.is_shadow = offer.candidate.shadow
        self._offer = offer
        self._catalogue.put(self._batching.name, offer)
        self.forget_removed()

    def weighs(self, api: str) -> bool:
        return api in self.in_force and self.in_force[api].settings.cost is not None

    def withdraw(self, apis: Collection[str]) -> None:
        """Reject requests to some APIs, while the service stays otherwise unchanged."""
        if self._offer is not None:
            self._catalogue.put(self._batching.name, self._offer.without(apis) if apis else self._offer)

    def forget_removed(self) -> None:
        """Drop the queues and counts of removed APIs that have no requests left."""
        self._removed = {name for name in self._removed if not self._batching.forget_api(name)}

    def _route(self, api: ApiDescription, dialect: Dialect, settings: GatewaySettings) -> ApiRoute:
        batching = self._batching
        return ApiRoute(
            api.name,
            kind=StreamRequest if api.streams else None,
            dialect=dialect,
            dispatcher=batching.dispatcher,
            tally=batching.metrics.api(api.name),
            max_body_bytes=settings.max_body_bytes,
            batch_headers=batching.batch_headers,
            contract=api.contract,
            grouping=grouping(api),
            classes=batching.classes(api),
            coalescing=batching.coalescing(api),
            headers=api.headers,
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
    if settings.cost == "bytes":
        max_queue_rows = max(max_queue_rows, limits.max_queue_bytes)
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
        bulk_goal_s=api.bulk_goal_s,
        workers=settings.workers or 0,
        concurrency=api.concurrency,
        predicts=not api.streams,
        fair=limits.fair_by is not None,
        unit=repr(settings.cost),
    )


def _native(api: ApiDescription, limits: Limits) -> Native:
    codec = codec_of(api, limits)
    if not api.task:
        return Native(codec, offers=api.offers, errors=api.errors)
    return TEXT_MODELS[api.task](codec, offers=api.offers, errors=api.errors)
