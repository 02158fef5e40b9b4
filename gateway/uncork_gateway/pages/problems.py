"""Errors as problem documents, with the id of the request."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from uncork_gateway.errors import PROBLEM_JSON, RefusalReason, problem
from uncork_gateway.headers import request_id_of


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
