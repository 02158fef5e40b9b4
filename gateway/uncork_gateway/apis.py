"""The APIs of a service: their settings, routes and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uncork_dispatcher import ApiRules
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import Dialect, Native
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.pages.models.metadata import Model, dialects_of, models_of
from uncork_gateway.pages.models.outputs import Outputs
from uncork_gateway.requests.api_route import ApiRoute
from uncork_gateway.requests.api_target import ApiTarget
from uncork_gateway.requests.stream_route import StreamRoute
from uncork_gateway.settings import ServerSettings
from uncork_workers.wire.overrides import Override, apply_overrides
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

if TYPE_CHECKING:
    from uncork_gateway.grpc.service import GrpcService, Served

_QUEUE_BATCHES = 20
_QUEUE_REQUESTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(ServerSettings):
    """The settings of a gateway.

    An API with a cost may queue ``max_queue_rows`` of cost, or 20 full batches if that is more, in 20 000
    requests or as many as rows.

    Attributes:
        overrides: replace the APIs' own settings; the last one of an argument wins.
        workers: how many workers the supervisor starts; they have the lowest indexes.
        warmup_seconds: most seconds that workers on TCP spend on their warm-up.
    """

    overrides: Sequence[Override] = ()
    workers: int = 1
    warmup_seconds: float = 0.0


class Apis:
    """The APIs in force.

    Attributes:
        service: as the workers describe it, without the overrides; None before the first description.
        in_force: the APIs by name, with the overrides.
        models: by name, as other protocols see the APIs.
        outputs: what is known of the outputs of each API; an API that streams has none.
    """

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self.service: ServiceDescription | None = None
        self.in_force: dict[str, ApiDescription] = {}
        self.models: dict[str, Model] = {}
        self.outputs: dict[str, Outputs] = {}
        self._grpc: GrpcService | None = None
        self._rules: dict[str, ApiRules] = {}
        self._routes: list[ApiTarget] = []
        self._old_routes: list[ApiTarget] = []

    def serve_grpc(self, served: Served) -> None:
        """Serve gRPC clients too; called before the first description."""
        from uncork_gateway.grpc.service import GrpcService  # needs an extra

        self._grpc = GrpcService(self._front_end, served)

    def put_in_force(
        self, service: ServiceDescription, settings: GatewaySettings, *, same_code: bool = False
    ) -> ServiceDescription:
        """Serve ``service`` with these settings; returns it with the overrides.

        With the same code, what is known of the outputs stays.

        Raises:
            ValueError: if it cannot be served; nothing has changed then.
        """
        effective = apply_overrides(service, settings.overrides)
        apis = effective.apis
        # Everything is built before anything is replaced: a service that is wrong changes nothing.
        rules = {api.name: _rules(api, settings) for api in apis}
        models = models_of(effective, outputs=self.outputs if same_code else {})
        routes = {api.route.encode(): self._route(api, _native(api), settings) for api in apis}
        for model in models.values():
            for path, api, dialect in dialects_of(model):
                routes[path.encode()] = self._route(api, dialect, settings)
        over_grpc = None if self._grpc is None else self._grpc.prepare(effective, models)
        for name, one in rules.items():
            # Setting the same rules again would repeat the warning about a goal that is out of reach.
            if service != self.service or one != self._rules.get(name):
                self._front_end.dispatcher.set_api(one)
        self._rules = rules
        self.in_force = {api.name: api for api in apis}
        self._old_routes += self._routes
        self._routes = list(routes.values())
        if self._grpc is not None and over_grpc is not None:
            self._routes += self._grpc.put_in_force(over_grpc, fair_by=settings.fair_by)
        self._front_end.routes.replace(routes)
        self.models = models
        self.outputs = {model.api.name: model.outputs for model in models.values()}
        self.service = service
        self.forget_removed()
        return effective

    def forget_removed(self) -> None:
        """Drop the queues and counts of the APIs that reloads have removed, once they have no requests."""
        removed = {route.api for route in self._old_routes} - self.in_force.keys()
        forgotten = {name for name in removed if self._front_end.forget_api(name)}
        for route in self._old_routes:
            if route.api in forgotten:
                route.remove()
        self._old_routes = [route for route in self._old_routes if route.api in removed - forgotten]

    def _route(self, api: ApiDescription, dialect: Dialect, settings: GatewaySettings) -> ApiRoute:
        front_end = self._front_end
        return (StreamRoute if api.streams else ApiRoute)(
            api.name,
            dialect=dialect,
            dispatcher=front_end.dispatcher,
            tally=front_end.metrics.api(api.name),
            max_body_bytes=settings.max_body_bytes,
            batch_headers=front_end.batch_headers,
            fair_by=settings.fair_by,
        )


def _rules(api: ApiDescription, limits: GatewaySettings) -> ApiRules:
    settings = api.settings
    max_queue_rows = limits.max_queue_rows
    if settings.cost is not None:
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
        max_queue_rows=max_queue_rows,
        max_queue_requests=max(_QUEUE_REQUESTS, limits.max_queue_rows),
        max_queue_bytes=limits.max_queue_bytes,
        fair=limits.fair_by is not None,
    )


def _native(api: ApiDescription) -> Native:
    codec = make_codec(api.input, api.settings.cost)
    return Native(codec, offers=api.offers, errors=api.errors)
