"""The pages of a service's gateway, besides those of every front end: models, OpenAPI, docs."""

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.errors import RefusalReason, problem
from uncork_gateway.pages.curl import curl
from uncork_gateway.pages.dashboard.page import ORIGIN
from uncork_gateway.pages.docs import docs_routes
from uncork_gateway.pages.home import FOR_CLIENTS, FOR_OPERATORS, Home, HomePage
from uncork_gateway.pages.models.metadata import PREFIXES, ROOTS, Model, ModelPages
from uncork_gateway.pages.models.triton import TritonPages
from uncork_gateway.pages.nearest import OF_ROUTER, Methods, methods_of, not_served
from uncork_gateway.pages.openapi import make_openapi
from uncork_gateway.pages.plain_pages import Front, Pages
from uncork_gateway.pages.status.status_builder import StatusSource
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.telemetry.metrics import Metrics
from uncork_workers.wire.schema import ServiceDescription

_MOST_NAMED = 5


class ServiceFront(Front, Protocol):
    """The front end of a service; ``routes`` are those of batched requests, the service's own APIs first."""

    routes: RouteTable
    metrics: Metrics


class Served(StatusSource, Protocol):
    """A service, as its pages show it."""

    @property
    def service(self) -> ServiceDescription | None:
        """The service with its own settings; None until a worker has described it."""

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by name; another mapping after each reload."""


class ServicePages:
    """The plain routes of the gateway of a service: :class:`Pages` with models and documents."""

    def __init__(self, front: ServiceFront, served: Served) -> None:
        self._front = front
        self._served = served
        self._routes_of: Mapping[str, Model] | None = None
        has_admin = front.settings.admin
        models = ModelPages(
            models=lambda: served.models,
            ready=lambda: not front.unready(),
            statistics=not has_admin,
        )
        triton = TritonPages(models=lambda: served.models, tally=front.metrics.api, unready=front.unready)
        # Before the route of a model, which would take "stats" for a name.
        moved = triton.moved_statistics_routes() if has_admin else []
        links = FOR_CLIENTS if has_admin else FOR_CLIENTS | FOR_OPERATORS
        home = HomePage(self._home, links, keys=lambda: front.settings.keys)
        self.pages = Pages(
            front,
            served,
            commands=self._commands,
            for_clients=[Route("/openapi.json", self._openapi), *triton.routes(), *moved, *models.routes()],
            operating=triton.statistics_routes(),
            free=[*home.routes(), *docs_routes()],
            error=_error,
            on_http_error=self._http_error,
        )

    def _home(self) -> Home:
        served, service, reason = self._served, self._served.service, self._front.unready()
        if service is None:
            return Home(None, not_ready_reason=reason)
        models = sorted(name for name, model in served.models.items() if model.api.input["kind"] != "raw")
        return Home(service.name, service.doc, reason, apis=service.apis, models=models)

    def _commands(self, names: Collection[str]) -> dict[str, str]:
        apis = () if self._served.service is None else self._served.service.apis
        wants_key = self._front.settings.keys is not None
        return {api.name: curl(api, ORIGIN, wants_key=wants_key) for api in apis if api.name in names}

    async def _openapi(self, request: Request) -> Response:
        if self._served.service is None:
            return self._not_ready(request.url.path)
        service, models = self._served.service, self._served.models
        document = make_openapi(service, models, self._front.settings)
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if self._served.service is None and error.status_code in (404, 405):
            return self._not_ready(path)
        # Any other error comes from a page, with a message of its own.
        if error.detail in OF_ROUTER or path.encode() in self._front.routes.handlers:
            methods, hint = self._all_routes()
            error = not_served(request.method, path, methods, otherwise=hint)
        return _error(path, error.status_code, error.detail, dict(error.headers or {}))

    def _not_ready(self, path: str) -> Response:
        reason = self._served.not_ready_reason
        return _error(path, 503, reason, {"retry-after": "1"}, refused="no_worker")

    def _all_routes(self) -> tuple[Methods, str]:
        """Return the methods of all paths, and a hint at the APIs; built once per reload."""
        models = self._served.models
        if self._routes_of is not models:
            apis = [path.decode() for path in self._front.routes.handlers]
            methods = {**methods_of(self.pages.routes, models), **dict.fromkeys(apis, "POST")}
            own = [f"POST {one}" for one in apis if not one.startswith(PREFIXES)]
            self._methods, self._hint = methods, f"available APIs: {', '.join(own[:_MOST_NAMED])}"
            self._routes_of = models
        return self._methods, self._hint


def _error(
    path: str, status: int, detail: str, headers: dict[str, str], refused: RefusalReason | None = None
) -> Response:
    if path.startswith(PREFIXES) or path in ROOTS:
        return Response(error_body(detail), status, headers=headers, media_type="application/json")
    document = problem(status, detail, refused)
    return Response(document, status, headers=headers, media_type="application/problem+json")
