"""What a gateway answers to those who do not ask for a batch: health, metrics, models, documents, errors."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from uncork_gateway.errors import problem
from uncork_gateway.metrics import CONTENT_TYPE
from uncork_gateway.models import PREFIXES, Model, ModelPages
from uncork_gateway.openapi import make_openapi
from uncork_gateway.protocols.rows import error_body
from uncork_workers.description import ServiceDescription


class Served(Protocol):
    """What is served now, and how it is.

    Attributes:
        service: with the settings of its own; None until a worker has said it.
        models: by name.
        trouble: why no worker is ready, if none is.
        draining: whether new requests are refused.
    """

    service: ServiceDescription | None
    models: dict[str, Model]
    trouble: str
    draining: bool

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
    """The plain routes of a gateway."""

    def __init__(self, served: Served) -> None:
        self._served = served
        models = ModelPages(
            version=version("uncork"),
            models=lambda: served.models,
            ready=lambda: served.any_ready and not served.draining,
        )
        self.app = Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/healthz", self._readyz),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._openapi),
                *models.routes(),
            ],
            exception_handlers={HTTPException: self._http_error},
        )
        # A redirection would have what the client says is our host in a header.
        self.app.router.redirect_slashes = False

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
        write = _plain_error if path.startswith(PREFIXES) or path == "/v2" else _problem
        if self._served.service is None and error.status_code in (404, 405):
            return write(503, self._nobody(), {"retry-after": "1"})
        if self._served.is_api(path):
            return write(405, f"{request.method} is not allowed for {path}; send POST", {"allow": "POST"})
        of_models = path.startswith(PREFIXES) and request.method == "POST" and error.status_code == 405
        if of_models or error.detail == HTTPStatus.NOT_FOUND.phrase:
            return write(404, f"there is no {path} here")
        return write(error.status_code, error.detail, dict(error.headers or {}))

    def _nobody(self) -> str:
        return f"no worker is ready: {self._served.trouble}"


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(problem(status, detail), status, headers=headers, media_type="application/problem+json")


def _plain_error(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(detail), status, headers=headers, media_type="application/json")
