"""Pages of other origins whose scripts may call the API in a browser (CORS, of the Fetch standard).

Credentials are never allowed: with a header for them, a page could use what the browser alone has, such as a
client certificate. API keys come in headers that the page sets itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uncork_gateway.headers import Header, header_lines

ANY = "*"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_IMPLIED_PORT = re.compile(r"http://.*:80|https://.*:443")
# The wildcard does not include authorization.
_PREFLIGHT = (
    (b"access-control-allow-methods", b"*"),
    (b"access-control-allow-headers", b"authorization, *"),
    (b"access-control-max-age", b"600"),
)
_VARY = (b"vary", b"origin")
_PREFIX = b"access-control-"


def read_origin(text: str) -> bytes:
    """Return an origin as browsers send it, or ``*`` for all.

    Raises:
        ValueError: if the text is neither.
    """
    origin = text.lower()
    if origin != ANY and (not _ORIGIN.fullmatch(origin) or _IMPLIED_PORT.fullmatch(origin)):
        raise ValueError(
            f"{text!r} is not an origin; give scheme, host and any port that the scheme does not imply, such "
            "as https://app.example.com or http://localhost:5173, or * for all origins"
        )
    return origin.encode()


def without_cors(headers: Iterable[Header]) -> Iterator[Header]:
    """Yield the headers of a server behind the proxy without those by which it allows origins itself."""
    return (header for header in headers if not header[0].lower().startswith(_PREFIX))


class AllowedOrigins:
    """The origins whose pages may call the API."""

    def __init__(self, origins: Iterable[bytes]) -> None:
        self._origins = frozenset(origins)
        self._is_any = ANY.encode() in self._origins

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllowedOrigins) and self._origins == other._origins

    __hash__ = None  # type: ignore[assignment]

    def admit(self, request: Iterable[Header]) -> bytes:
        """Return the allowed origin for a request with these headers; empty if its origin is not allowed."""
        if self._is_any:
            return ANY.encode()
        origin = next((value for name, value in request if name.lower() == b"origin"), b"")
        return origin if origin in self._origins else b""

    def headers(self, request: Iterable[Header]) -> list[Header]:
        """Return the headers of the response to a request with these headers."""
        origin = self.admit(request)
        vary = [] if self._is_any else [_VARY]
        if not origin:
            return vary
        return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", b"*"), *vary]

    def lines(self, request: Iterable[Header]) -> bytes:
        """Return :meth:`headers` as the lines of a response."""
        return header_lines(self.headers(request))


@dataclass(slots=True, eq=False)
class AllowOrigins:
    """An ASGI app that lets pages of allowed origins read responses, and answers what browsers ask before.

    Attributes:
        app: serves all requests but these.
        origins: returns the allowed origins; None if only pages of the server's own may read responses.
        closed: the routes of the app that pages of other origins may not read.
    """

    app: ASGIApp
    origins: Callable[[], AllowedOrigins | None]
    closed: Sequence[BaseRoute]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origins = self.origins()
        if origins is None or scope["type"] != "http" or self._is_closed(scope):
            await self.app(scope, receive, send)
            return
        headers = origins.headers(scope["headers"])
        if _is_preflight(scope) and origins.admit(scope["headers"]):
            response = Response(status_code=204, headers=_texts([*headers, *_PREFLIGHT]))
            await response(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*without_cors(message.get("headers", ())), *headers]}
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _is_closed(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is not Match.NONE for route in self.closed)


def _is_preflight(scope: Scope) -> bool:
    """Return True if a browser asks whether a page may send a request."""
    names = {name for name, _ in scope["headers"]}
    return scope["method"] == "OPTIONS" and {b"origin", b"access-control-request-method"} <= names


def _texts(headers: Iterable[Header]) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in headers}
