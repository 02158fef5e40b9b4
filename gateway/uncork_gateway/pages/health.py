"""What any front end answers to those who ask for no batch: its health, and what is for its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from uncork_gateway.auth import RequireKey
from uncork_gateway.pages.dashboard.page import Dashboard
from uncork_gateway.pages.home import FOR_OPERATORS, Home, HomePage
from uncork_gateway.pages.nearest import OF_ROUTER, methods_of, not_served
from uncork_gateway.pages.status.status_builder import Board, Displayed
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.metrics import CONTENT_TYPE

WriteError = Callable[[str, int, str, dict[str, str]], Response]
"""Makes an answer from path, status, detail and headers, in the form that clients of the path expect."""


class Front(Displayed, Protocol):
    """A front end, how it is, and what it tells of itself.

    Attributes:
        board: how it is, in figures and in words.
    """

    board: Board

    def render_metrics(self) -> bytes:
        """All that is counted, for Prometheus."""
        ...


class Pages:
    """The plain routes of a front end.

    Args:
        front: of what they tell.
        settings: who may see them, and where.
        for_clients: more routes for clients.
        operating: more routes for operators.
        free: more routes for clients, who need no key for these; their answers tell nothing of the server.
        error: writes errors.
        on_http_error: answers clients who asked for what is not there; None: there is a route for everything.

    Attributes:
        app: for clients.
        routes: those of ``app``.
        admin_app: for operators, who need no key; None if the one for clients has it all.
    """

    def __init__(
        self,
        front: Front,
        settings: ServerSettings,
        *,
        for_clients: Sequence[BaseRoute],
        operating: Sequence[BaseRoute] = (),
        free: Sequence[BaseRoute] = (),
        error: WriteError,
        on_http_error: Callable[[Request, Exception], Any] | None = None,
    ) -> None:
        self._front = front
        self._error = error
        health = [
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route("/healthz", self._readyz),
        ]
        dashboard = Dashboard(front.board, error=error, apart=settings.admin)
        self.close = dashboard.close
        """End what would go on for as long as somebody looks."""
        operating = [
            Route("/metrics", self._metrics),
            Route("/status", self._status),
            *dashboard.event_routes(),
            *operating,
        ]
        # A load balancer that looks whether we live has no key, nor has a browser that opens a page.
        looks = [*health, *dashboard.page_routes()]
        free = [*health, *free] if settings.admin else [*looks, *free]
        app = Starlette(
            routes=[*free, *([] if settings.admin else operating), *for_clients],
            exception_handlers={HTTPException: on_http_error} if on_http_error else None,
        )
        # A redirection would have what the client says is our host in a header.
        app.router.redirect_slashes = False
        self.routes: Sequence[BaseRoute] = app.routes
        self.app: ASGIApp = app
        if settings.keys is not None:
            self.app = RequireKey(app, settings.keys, error, free=free)
        self.admin_app: ASGIApp | None = None
        if settings.admin:
            on_error = {HTTPException: self._admin_error}
            home = HomePage(lambda: Home(front.server, trouble=unready(front)), FOR_OPERATORS, keys=None)
            routes = [*home.routes(), *looks, *operating]
            admin_app = Starlette(routes=routes, exception_handlers=on_error)
            self._admin_methods = methods_of(admin_app.routes)
            admin_app.router.redirect_slashes = False
            self.admin_app = admin_app

    async def _livez(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, request: Request) -> Response:
        reason = unready(self._front)
        if reason:
            return self._error(request.url.path, 503, reason, {})
        return PlainTextResponse("ready\n")

    async def _metrics(self, request: Request) -> Response:
        return Response(self._front.render_metrics(), media_type=CONTENT_TYPE)

    async def _status(self, request: Request) -> Response:
        document = msgspec.json.format(msgspec.json.encode(self._front.board.status()), indent=2)
        return Response(document, media_type="application/json", headers={"cache-control": "no-store"})

    async def _admin_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, detail = request.url.path, error.detail
        # The routes of models take other methods than GET for no model, whatever its name is.
        if detail in OF_ROUTER and (error.status_code == 404 or path in self._admin_methods):
            error = not_served(request.method, path, self._admin_methods)
            detail = error.detail
            if error.status_code == 404:
                separator = "" if detail.endswith("?") else ";"
                detail = f"{detail}{separator} routes for clients are on another port"
        return self._error(path, error.status_code, detail, dict(error.headers or {}))


def unready(front: Displayed) -> str:
    """Return why requests cannot be answered now; empty if they can."""
    if front.draining:
        return "the server is shutting down"
    return "" if front.any_ready else front.trouble
