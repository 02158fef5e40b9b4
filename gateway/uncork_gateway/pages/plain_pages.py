"""The pages of every front end: health for clients, metrics, status and dashboard for operators."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from uncork_gateway.auth import (
    AcceptedKeys,
    AllowOrigins,
    ApiKeys,
    RefuseOtherSites,
    RequireKey,
    WriteError,
)
from uncork_gateway.headers import NO_STORE
from uncork_gateway.pages.dashboard.feed import Commands
from uncork_gateway.pages.dashboard.page import Dashboard
from uncork_gateway.pages.home import FOR_OPERATORS, Home, home_routes
from uncork_gateway.pages.nearest import OF_ROUTER, methods_of, not_served, options
from uncork_gateway.pages.status.service_status import Front

OnHttpError = Callable[[Request, Exception], Any]


class Pages:
    """The routes of a front end that execute no batches.

    Args:
        commands: returns commands that call APIs, for the dashboard.
        for_clients: additional routes for clients.
        operating: additional routes for operators.
        free: additional routes for clients without an API key; they reveal nothing about the server.
        like_readyz: other paths with the response of ``/readyz``.
        on_http_error: handles requests without a route; None if every path except ``*`` has a route.

    Attributes:
        app: the app for clients; ``routes`` are its routes.
        admin_app: the app for operators, who need no key; None if ``app`` serves all routes.
        start: starts recording the dashboard's history; call it inside a running event loop.
        close: ends the recording, and the event streams.
    """

    def __init__(
        self,
        front: Front,
        *,
        commands: Commands = lambda names: {},
        for_clients: Sequence[BaseRoute],
        operating: Sequence[BaseRoute] = (),
        free: Sequence[BaseRoute] = (),
        like_readyz: Sequence[str] = (),
        error: WriteError,
        on_http_error: OnHttpError | None = None,
    ) -> None:
        self._front = front
        self._error = error
        self._like_readyz = like_readyz
        has_admin = front.settings.admin
        health = self._health_routes(self._keys)
        dashboard = Dashboard(
            front.status_builder,
            commands,
            error=error,
            apart=has_admin,
            is_admitted=lambda viewer: (
                has_admin or (keys := self._keys()) is None or keys.admit(viewer.scope["headers"])
            ),
        )
        self.start, self.close = dashboard.start, dashboard.close
        # Neither a load balancer nor a browser that opens a page sends a key.
        pages, events = dashboard.page_routes(), dashboard.event_routes()
        if not front.settings.dashboard:
            self.start, pages, events = lambda: None, [], []
        status = [Route("/metrics", self._metrics), Route("/status", self._status)]
        operating = [*status, *events, *operating]
        self.admin_app: ASGIApp | None = None
        if has_admin:
            home = home_routes(lambda: Home(front.server(), not_ready_reason=front.unready()), FOR_OPERATORS)
            routes = [*home, *self._health_routes(lambda: None), *pages, *operating]
            admin = _app(routes, self._admin_error)
            self.admin_app = RefuseOtherSites(admin, lambda: front.settings.clients.allowed_hosts, error)
            self._admin_methods = methods_of(admin.routes)
            free, operating, pages = [*health, *free], [], []
        else:
            free = [*health, *pages, *free]
        app = _app([*free, *operating, *for_clients], on_http_error or self._http_error)
        self.routes: Sequence[BaseRoute] = app.routes
        # A page of another origin could read what operators see through the browser of one.
        self.app = AllowOrigins(
            RequireKey(app, self._keys, error, free=free),
            lambda: front.settings.origins,
            closed=[*operating, *pages],
        )

    def _keys(self) -> ApiKeys | None:
        return self._front.settings.keys

    def _health_routes(self, keys: AcceptedKeys) -> list[BaseRoute]:
        """Return the routes for load balancers. If keys exist, only requests with a key get the reason."""
        ready = partial(self._readyz, keys)
        paths = ("/readyz", "/healthz", *self._like_readyz, "/readyz/{service}")
        return [Route("/livez", self._livez), *[Route(path, ready) for path in paths]]

    async def _livez(self, request: Request) -> Response:
        return PlainTextResponse("alive\n", headers=NO_STORE)

    async def _readyz(self, accepted: AcceptedKeys, request: Request) -> Response:
        keys = accepted()
        in_full = keys is None or keys.admit(request.scope["headers"])
        service = request.path_params.get("service")
        try:
            reason = self._front.unready(service, in_full=in_full)
        except KeyError:
            return self._error(request.scope, 404, f"no service is named {service}", NO_STORE)
        if reason:
            return self._error(request.scope, 503, reason, NO_STORE)
        return PlainTextResponse("ready\n", headers=NO_STORE)

    async def _metrics(self, request: Request) -> Response:
        text, media_type = await self._front.exposition.render(request.headers.get("accept", ""))
        return Response(text, media_type=media_type, headers=NO_STORE)

    async def _status(self, request: Request) -> Response:
        document = msgspec.json.format(msgspec.json.encode(self._front.status_builder.status()), indent=2)
        return Response(document, media_type="application/json", headers=NO_STORE)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        return options(request, self._error(request.scope, error.status_code, error.detail, headers))

    async def _admin_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, detail = request.url.path, error.detail
        # A 405 on a path with a parameter stays as it is: such paths are not among the methods.
        if detail in OF_ROUTER and (error.status_code == 404 or path in self._admin_methods):
            error = not_served(request.method, path, self._admin_methods)
            detail = error.detail
            if error.status_code == 404:
                separator = "" if detail.endswith("?") else ";"
                detail = f"{detail}{separator} client routes are on another port"
        return options(
            request, self._error(request.scope, error.status_code, detail, dict(error.headers or {}))
        )


def _app(routes: Sequence[BaseRoute], on_http_error: OnHttpError) -> Starlette:
    app = Starlette(routes=routes, exception_handlers={HTTPException: on_http_error})
    # A redirect would put the client's Host header into a header of the answer.
    app.router.redirect_slashes = False
    return app
