"""What a gateway answers to those who do not ask for a batch: health, metrics, models, documents, errors."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from uncork_gateway.errors import problem
from uncork_gateway.keys import ApiKeys, RequireKey
from uncork_gateway.metrics import CONTENT_TYPE
from uncork_gateway.models import PREFIXES, Model, ModelPages
from uncork_gateway.openapi import make_openapi
from uncork_gateway.protocols.rows import error_body
from uncork_workers.description import ServiceDescription


class Served(Protocol):
    """What is served now, and how it is.

    Attributes:
        draining: whether new requests are refused.
    """

    draining: bool

    @property
    def service(self) -> ServiceDescription | None:
        """With the settings of its own; None until a worker has said it."""
        ...

    @property
    def models(self) -> Mapping[str, Model]:
        """By name."""
        ...

    @property
    def trouble(self) -> str:
        """Why no worker is ready, if none is."""
        ...

    @property
    def any_ready(self) -> bool:
        """Whether a worker takes batches."""
        ...

    def is_api(self, path: str) -> bool:
        """Whether requests for batches are taken at a path."""
        ...

    def render_metrics(self) -> bytes:
        """All that is counted, for Prometheus."""
        ...


class Pages:
    """The plain routes of a gateway.

    Args:
        served: what they tell.
        keys: the keys without which only health is told; None: everybody may ask.
        admin: whether what is for the operators has an app of its own.

    Attributes:
        app: for clients.
        admin_app: for operators, who need no key; None if the one for clients has it all.
    """

    def __init__(self, served: Served, *, keys: ApiKeys | None = None, admin: bool = False) -> None:
        self._served = served
        models = ModelPages(
            version=version("uncork"),
            models=lambda: served.models,
            ready=lambda: served.any_ready and not served.draining,
        )
        health = [
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route("/healthz", self._readyz),
        ]
        operating = [
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._openapi),
        ]
        on_error = {HTTPException: self._http_error}
        routes = [*health, *models.routes(), *([] if admin else operating)]
        app = Starlette(routes=routes, exception_handlers=on_error)
        self.app: ASGIApp = app if keys is None else RequireKey(app, keys, _error)
        # A redirection would have what the client says is our host in a header.
        app.router.redirect_slashes = False
        self.admin_app: ASGIApp | None = None
        if admin:
            on_error = {HTTPException: self._admin_error}
            self.admin_app = Starlette(routes=[*health, *operating], exception_handlers=on_error)

    async def _livez(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, request: Request) -> Response:
        if self._served.draining:
            return _problem(503, "the server is shutting down")
        if not self._served.any_ready:
            return _problem(503, self._nobody())
        return PlainTextResponse("ready\n")

    async def _metrics(self, request: Request) -> Response:
        return Response(self._served.render_metrics(), media_type=CONTENT_TYPE)

    async def _openapi(self, request: Request) -> Response:
        if self._served.service is None:
            return _problem(503, self._nobody(), {"retry-after": "1"})
        document = make_openapi(self._served.service, version=version("uncork"))
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if self._served.service is None and error.status_code in (404, 405):
            return _error(path, 503, self._nobody(), {"retry-after": "1"})
        if self._served.is_api(path):
            only_post = f"{request.method} is not allowed for {path}; send POST"
            return _error(path, 405, only_post, {"allow": "POST"})
        of_models = path.startswith(PREFIXES) and request.method == "POST" and error.status_code == 405
        if of_models or error.detail == HTTPStatus.NOT_FOUND.phrase:
            return _error(path, 404, f"there is no {path} here")
        return _error(path, error.status_code, error.detail, dict(error.headers or {}))

    async def _admin_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return _problem(404, f"there is no {request.url.path} here; apis and models have another port")
        return _problem(error.status_code, error.detail, dict(error.headers or {}))

    def _nobody(self) -> str:
        return f"no worker is ready: {self._served.trouble}"


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(problem(status, detail), status, headers=headers, media_type="application/problem+json")


def _error(path: str, status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An error in the form that clients of a path expect."""
    if path.startswith(PREFIXES) or path == "/v2":
        return Response(error_body(detail), status, headers=headers, media_type="application/json")
    return _problem(status, detail, headers)
