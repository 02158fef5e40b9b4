"""The apis that a gateway serves: under which settings, on which routes, as which models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uncork_dispatcher import ApiRules, AsyncDispatcher
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects import Dialect, Native
from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.pages.models.metadata import Model, dialects_of, models_of
from uncork_gateway.pages.models.outputs import Outputs
from uncork_gateway.requests.api_route import HotRoute
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.requests.stream_route import StreamRoute
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.metrics import Metrics
from uncork_workers.wire.overrides import Override, in_force
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

_QUEUE_BATCHES = 20
_QUEUE_REQUESTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(ServerSettings):
    """What is in force for all apis.

    An api that gives a cost may hold ``max_queue_rows`` of cost, or 20 full batches if that is more, in
    20 000 requests or as many as rows.

    Attributes:
        overrides: what replaces the apis' own settings; the last one of an argument counts.
    """

    overrides: Sequence[Override] = ()


class Apis:
    """What is in force of a service.

    Attributes:
        service: as the workers say it, without the overrides; None until one has said it.
        in_force: by name, under the overrides.
        models: by name, as other protocols see the apis.
        outputs: by name of api, what is known of its outputs; an api that streams has none.
        hot: the routes on which requests for batches are taken.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        dispatcher: AsyncDispatcher[Marshalled, RowsReply],
        metrics: Metrics,
        batch_head: BatchHead,
    ) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._batch_head = batch_head
        self.service: ServiceDescription | None = None
        self.in_force: dict[str, ApiDescription] = {}
        self.models: dict[str, Model] = {}
        self.outputs: dict[str, Outputs] = {}
        self.hot = settings.hot_routes()

    def put_in_force(self, service: ServiceDescription) -> ServiceDescription:
        """Have what ``service`` says, under the overrides, be what is served; returns it so.

        Raises:
            ValueError: if it cannot be served; nothing has changed then.
        """
        effective = in_force(service, self._settings.overrides)
        apis = effective.apis
        # All of it is made before any of it is used: a service that is wrong must change nothing.
        rules = [self._rules(api) for api in apis]
        models = models_of(effective)
        routes = {
            api.route.encode(): self._hot_route(
                api, Native(make_codec(api.input, api.settings.cost), offers=api.offers)
            )
            for api in apis
        }
        for model in models.values():
            for path, api, dialect in dialects_of(model):
                routes[path.encode()] = self._hot_route(api, dialect)
        if service != self.service:
            # Setting the same rules again would repeat the warning about a goal that is out of reach.
            for one in rules:
                self._dispatcher.set_api(one)
        self.in_force = {api.name: api for api in apis}
        self.hot.replace(routes)
        self.models = models
        self.outputs = {model.api.name: model.outputs for model in models.values()}
        self.service = service
        return effective

    def _rules(self, api: ApiDescription) -> ApiRules:
        settings = api.settings
        max_queue_rows = self._settings.max_queue_rows
        if settings.cost is not None:
            # One number for all apis knows nothing of their units of cost, but a queue must fill batches.
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
            max_queue_requests=max(_QUEUE_REQUESTS, self._settings.max_queue_rows),
            max_queue_bytes=self._settings.max_queue_bytes,
            fair=self._settings.fair_by is not None,
        )

    def _hot_route(self, api: ApiDescription, dialect: Dialect) -> HotRoute:
        route = StreamRoute if api.streams else HotRoute
        return route(
            api.name,
            dialect=dialect,
            dispatcher=self._dispatcher,
            tally=self._metrics.api(api.name),
            max_body_bytes=self._settings.max_body_bytes,
            batch_head=self._batch_head,
            fair_by=self._settings.fair_by,
        )
