"""What the gateway of a service answers to those who do not ask for a batch: models, documents, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from uncork_gateway.errors import problem
from uncork_gateway.pages.docs import DocsPage
from uncork_gateway.pages.health import Front, Pages, unready
from uncork_gateway.pages.home import FOR_CLIENTS, FOR_OPERATORS, Home, HomePage
from uncork_gateway.pages.models.metadata import PREFIXES, Model, ModelPages
from uncork_gateway.pages.models.triton import CONFIGURATION, STATISTICS, TritonPages
from uncork_gateway.pages.nearest import OF_ROUTER, methods_of, not_served
from uncork_gateway.pages.openapi import make_openapi
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.metrics import ApiTally
from uncork_gateway.version import VERSION
from uncork_workers.wire.schema import ServiceDescription

_MOST_NAMED = 5


class Served(Front, Protocol):
    """What is served now, and how it is."""

    @property
    def service(self) -> ServiceDescription | None:
        """With the settings of its own; None until a worker has said it."""
        ...

    @property
    def models(self) -> Mapping[str, Model]:
        """By name."""
        ...

    def tally(self, api: str) -> ApiTally:
        """What is counted of an api."""
        ...

    def api_paths(self) -> list[str]:
        """The paths at which requests for batches are taken, those of the service's own routes first."""
        ...


class ServicePages:
    """The plain routes of the gateway of a service: ``app`` and ``admin_app``, as :class:`Pages` has them."""

    def __init__(self, served: Served, settings: ServerSettings) -> None:
        self._served = served
        self._wants_keys = settings.keys is not None
        models = ModelPages(
            version=VERSION,
            models=lambda: served.models,
            ready=lambda: not unready(served),
            extensions=[CONFIGURATION] if settings.admin else [CONFIGURATION, STATISTICS],
        )
        triton = TritonPages(
            models=lambda: served.models, tally=served.tally, unready=lambda: unready(served)
        )
        links = FOR_CLIENTS if settings.admin else FOR_CLIENTS | FOR_OPERATORS
        home = HomePage(self._home, links, keys=settings.keys)
        pages = Pages(
            served,
            settings,
            for_clients=[Route("/openapi.json", self._openapi), *triton.routes(), *models.routes()],
            operating=triton.statistics_routes(),
            free=[*home.routes(), *DocsPage().routes()],
            error=_error,
            on_http_error=self._http_error,
        )
        self.app, self.admin_app, self.close = pages.app, pages.admin_app, pages.close
        self._routes = pages.routes

    def _home(self) -> Home:
        served, service = self._served, self._served.service
        trouble = unready(served)
        models = sorted(name for name, model in served.models.items() if model.api.input["kind"] != "raw")
        if service is None:
            return Home(None, trouble=trouble)
        return Home(service.name, service.doc, trouble, apis=service.apis, models=models)

    async def _openapi(self, request: Request) -> Response:
        if self._served.service is None:
            return _error(request.url.path, 503, self._served.trouble, {"retry-after": "1"})
        service, models = self._served.service, self._served.models
        document = make_openapi(service, models, version=VERSION, wants_keys=self._wants_keys)
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if self._served.service is None and error.status_code in (404, 405):
            return _error(path, 503, self._served.trouble, {"retry-after": "1"})
        apis = self._served.api_paths()
        # Any other error comes from a page and already says what is wrong.
        if error.detail in OF_ROUTER or path in apis:
            methods = {**methods_of(self._routes, self._served.models), **dict.fromkeys(apis, "POST")}
            own = [f"POST {one}" for one in apis if not one.startswith(PREFIXES)]
            hint = f"the apis are at {', '.join(own[:_MOST_NAMED])}"
            error = not_served(request.method, path, methods, otherwise=hint)
        return _error(path, error.status_code, error.detail, dict(error.headers or {}))


def _error(path: str, status: int, detail: str, headers: dict[str, str]) -> Response:
    """An error in the form that clients of a path expect."""
    if path.startswith(PREFIXES) or path == "/v2":
        return Response(error_body(detail), status, headers=headers, media_type="application/json")
    return Response(problem(status, detail), status, headers=headers, media_type="application/problem+json")
