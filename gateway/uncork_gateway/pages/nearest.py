"""Errors of pages; those for unknown paths and methods name the nearest route."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from heapq import nlargest
from http import HTTPStatus
from itertools import takewhile
from operator import eq

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from uncork_gateway.errors import PROBLEM_JSON, RefusalReason, problem
from uncork_gateway.headers import request_id_of
from uncork_gateway.versions import FIRST

_MODEL = "{model}"
_OF_SERVER = "GET, HEAD, OPTIONS, POST"
# Comparing two paths blocks the event loop for 0.1 ms or more, and a service may have hundreds.
_COMPARED = 8
_MOST_CHARACTERS = 300


def problem_response(
    scope: Scope,
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    reason: RefusalReason | None = None,
) -> Response:
    """Return a problem document for the request of a scope, in whose headers the connection puts its id."""
    document = problem(status, detail, reason, request_id_of(scope["headers"]))
    return Response(document, status, headers=headers, media_type=PROBLEM_JSON)


Methods = Mapping[str, str]
"""The accepted methods by path, as in the header Allow, the usual one first."""

OF_ROUTER = (HTTPStatus.NOT_FOUND.phrase, HTTPStatus.METHOD_NOT_ALLOWED.phrase)
"""The details of errors that the router raises, not a page."""


def methods_of(routes: Iterable[BaseRoute], models: Iterable[str] = ()) -> dict[str, str]:
    """Return the methods by path, with a path for each of ``models`` where the route has a model."""
    names = list(models)
    return {
        path: ", ".join(sorted(route.methods or ()))
        for route in routes
        if isinstance(route, Route)
        for path in _paths(route.path, names)
    }


def _paths(path: str, models: Iterable[str]) -> Iterator[str]:
    path = path.replace("{version}", FIRST)
    if _MODEL in path:
        yield from (path.replace(_MODEL, name) for name in models)
    elif "{" not in path:
        yield path


def not_served(
    method: str, path: str, methods: Methods, *, otherwise: str = "", root: str = ""
) -> HTTPException:
    """Return 405 for a known path, else 404 with the nearest path, or ``otherwise`` if none is near.

    ``root`` is the part of the URL before the paths.
    """
    if allowed := methods.get(path):
        usual = allowed.partition(",")[0]
        detail = f"{method} is not allowed for {root}{path}; use {usual}"
        return HTTPException(405, detail, headers={"allow": allowed})
    near = nearest(path, methods)
    hint = f"did you mean {methods[near].partition(',')[0]} {root}{near}?" if near else otherwise
    return HTTPException(404, f"no route for {root}{path}{'; ' if hint else ''}{hint}")


def options(request: Request, refusal: Response) -> Response:
    """Return the response to OPTIONS: the methods of the path, or of the server (``*``).

    For other requests, and for unknown paths, return ``refusal``, whose Allow header lists the methods.
    """
    if request.method != "OPTIONS":
        return refusal
    allowed = _OF_SERVER if request.scope["path"] == "*" else refusal.headers.get("allow")
    return Response(status_code=204, headers={"allow": allowed}) if allowed else refusal


def nearest(one: str, others: Iterable[str]) -> str | None:
    """Return the most similar path or name; None if none is similar enough."""
    if len(one) > _MOST_CHARACTERS:
        return None
    candidates = nlargest(_COMPARED, others, key=partial(_common_ends, one))
    return next(iter(get_close_matches(one, candidates, n=1)), None)


def _common_ends(one: str, other: str) -> int:
    """Return the number of characters that two paths share at their beginnings and ends."""
    begin = takewhile(bool, map(eq, one, other))
    end = takewhile(bool, map(eq, reversed(one), reversed(other)))
    common: int = sum(begin) + sum(end)
    return common
