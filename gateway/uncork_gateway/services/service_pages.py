"""The pages of a gateway, in addition to those of every front end: models, OpenAPI, docs."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from uncork_dispatcher.actions import SHORTEST_RETRY_S
from uncork_gateway.errors import RefusalReason
from uncork_gateway.front_end import NONE_SERVED, FrontEnd
from uncork_gateway.headers import route_path
from uncork_gateway.pages.curl import curl
from uncork_gateway.pages.dashboard.page import ORIGIN
from uncork_gateway.pages.docs import docs_routes
from uncork_gateway.pages.home import DASHBOARD, FOR_CLIENTS, FOR_OPERATORS, Home, home_routes
from uncork_gateway.pages.models.metadata import PREFIXES, ROOTS, ModelPages, ModelVersions, default_of
from uncork_gateway.pages.models.triton import TritonPages, loading_routes
from uncork_gateway.pages.models.unserved import why_unserved
from uncork_gateway.pages.nearest import OF_ROUTER, Methods, methods_of, not_served, options, problem_response
from uncork_gateway.pages.openapi.document import make_openapi
from uncork_gateway.pages.plain_pages import Pages
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.repository import Repository, RepositoryAccess
from uncork_gateway.services.catalogue import Catalogue, Offer
from uncork_gateway.versions import described

_MOST_NAMED = 5


class ServicePages:
    """The gateway's pages: :class:`Pages`, with models and documents.

    Args:
        missing: returns why some services are not described yet; empty once every service is.
        repository: returns the repository, which loads and unloads services.
    """

    def __init__(
        self,
        front: FrontEnd,
        catalogue: Catalogue,
        *,
        missing: Callable[[], str],
        repository: Callable[[], Repository | None],
    ) -> None:
        self._front = front
        self._catalogue = catalogue
        self._missing = missing
        self._routes_of: ModelVersions | None = None
        has_admin = front.settings.admin
        models = ModelPages(
            models=lambda: self._catalogue.models,
            ready=lambda: not front.unready(),
            statistics=not has_admin,
        )
        clients = RepositoryAccess(repository, is_allowed=lambda: front.settings.trusts_clients)
        operators = RepositoryAccess(repository, is_allowed=lambda: True)
        triton = TritonPages(lambda: self._catalogue.models, clients.unloaded)
        # Before the route of a model, which would take "stats" for a name.
        moved = triton.moved_statistics_routes() if has_admin else []
        links = FOR_CLIENTS if has_admin else FOR_CLIENTS | FOR_OPERATORS
        if not front.settings.dashboard:
            links = {title: path for title, path in links.items() if title != DASHBOARD}
        self.pages = Pages(
            front,
            commands=self._commands,
            for_clients=[
                Route("/openapi.json", self._openapi),
                *triton.routes(),
                *loading_routes(clients),
                *moved,
                *models.routes(),
            ],
            operating=[*triton.statistics_routes(), *(loading_routes(operators) if has_admin else [])],
            free=[*home_routes(self._home, links, keys=lambda: front.settings.keys), *docs_routes()],
            like_readyz=["/ping"],  # which Amazon SageMaker asks
            error=_error,
            on_http_error=self._http_error,
        )

    def _home(self) -> Home:
        reason, offers = self._front.unready(), list(self._catalogue.offers.values())
        if not offers:
            return Home(None, not_ready_reason=reason)
        models = {name: default_of(versions) for name, versions in self._catalogue.models.items()}
        names = sorted(name for name, model in models.items() if model.api.input["kind"] != "raw")
        apis = [api for offer in offers for api in offer.service.apis]
        only = offers[0].service if len(offers) == 1 else None
        name, text = (only.name, only.doc) if only else (None, "")
        return Home(name, text, reason, apis=apis, models=names)

    def _commands(self, ids: Collection[str]) -> dict[str, str]:
        wants_key = self._front.settings.keys is not None
        offers = self._catalogue.offers.values()
        apis = {offer.prefix + api.name: api for offer in offers for api in offer.service.apis}
        return {key: curl(api, ORIGIN, wants_key=wants_key) for key, api in apis.items() if key in ids}

    async def _openapi(self, request: Request) -> Response:
        offers = self._catalogue.offers
        if not offers:
            # Clients may have unloaded the last service.
            is_empty = not self._missing()
            return _error(request.scope, 404, NONE_SERVED, {}) if is_empty else self._not_ready(request.scope)
        services = {name: offers[name].service for name in _defaults_last(offers)}
        document = make_openapi(services, self._catalogue.models, self._front.settings)
        if root := request.scope["root_path"]:
            document["servers"] = [{"url": root}]
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, root = route_path(request.scope), request.scope["root_path"]
        # The path may belong to a service that is not described yet, or was not when the head was read.
        is_described = request.method == "POST" and path.encode() in self._front.routes.handlers
        if error.status_code in (404, 405) and (is_described or self._missing()):
            return self._not_ready(request.scope)
        # Any other error comes from a page, with a message of its own.
        if error.detail in OF_ROUTER or path.encode() in self._front.routes.handlers:
            methods, own = self._all_routes()
            hint = f"available APIs: {', '.join(f'POST {root}{one}' for one in own)}" if own else ""
            error = not_served(request.method, path, methods, otherwise=hint, root=root)
            if error.status_code == 404 and (reason := why_unserved(path, self._catalogue.models, root=root)):
                return _error(request.scope, 404, reason, {})
        refusal = _error(request.scope, error.status_code, error.detail, dict(error.headers or {}))
        return options(request, refusal)

    def _not_ready(self, scope: Scope) -> Response:
        reason = self._missing() or "the service has just become ready; send the request again"
        return _error(scope, 503, reason, {"retry-after": f"{SHORTEST_RETRY_S:g}"}, refused="no_worker")

    def _all_routes(self) -> tuple[Methods, Sequence[str]]:
        """Return the methods of all paths, and the paths of some APIs; computed once per reload."""
        models = self._catalogue.models
        if self._routes_of is not models:
            apis = [path.decode() for path in self._front.routes.handlers]
            methods = {**methods_of(self.pages.routes, models), **dict.fromkeys(apis, "POST")}
            own = [one for offer in self._catalogue.offers.values() for one in offer.own]
            self._methods, self._own = methods, own[:_MOST_NAMED]
            self._routes_of = models
        return self._methods, self._own


def _error(
    scope: Scope, status: int, detail: str, headers: dict[str, str], refused: RefusalReason | None = None
) -> Response:
    path = route_path(scope)
    # Cohere has a route of this prefix, at which text models are like other APIs.
    if path in ROOTS or (path.startswith(PREFIXES) and path != "/v2/rerank"):
        return Response(error_body(detail), status, headers=headers, media_type="application/json")
    return problem_response(scope, status, detail, headers, refused)


def _defaults_last(offers: Mapping[str, Offer]) -> list[str]:
    """Return the names of offers; of versions, which share routes, the one that gets the requests is last."""
    chosen: set[str] = set()
    for name in {offer.name.name for offer in offers.values()}:
        options = [(one.candidate, text) for text, one in offers.items() if one.name.name == name]
        chosen.add(described(options))
    return sorted(offers, key=chosen.__contains__)
