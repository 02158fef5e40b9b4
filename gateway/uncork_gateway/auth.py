"""Who may call: API keys, for gateways without an authenticating proxy, and pages of other origins (CORS)."""

import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uncork_gateway.headers import Header, host_name, names_us

WriteError = Callable[[Scope, int, str, dict[str, str]], Response]
"""Makes an error from scope, status, detail and headers, in the form that clients of the path expect."""

_SHORTEST_KEY = 16
_BEARER = b"bearer "
# Known to this process alone: clients cannot choose guesses by their digests.
_DIGEST_KEY = secrets.token_bytes(32)
_SAFE = ("GET", "HEAD", "OPTIONS")
REFUSAL = "missing or unknown API key; send it as Authorization: Bearer KEY or X-Api-Key: KEY"
_ANY = b"*"
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


class ApiKeys:
    """The accepted keys, sent as ``Authorization: Bearer KEY`` or ``X-Api-Key: KEY``."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._digests = frozenset(map(_digest, keys))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKeys) and self._digests == other._digests

    __hash__ = None  # type: ignore[assignment]

    def admit(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Return True if a header carries an accepted key.

        The time taken reveals nothing about the keys. It does not grow with their number either: a client
        without a key may send many headers.
        """
        admitted = False
        for key in sent_keys(headers):
            admitted |= _digest(key) in self._digests
        return admitted


def sent_keys(headers: Iterable[Header]) -> Iterator[bytes]:
    """Return the API keys in the headers of a request, accepted or not."""
    for name, value in headers:
        match name.lower():
            case b"authorization" if value[: len(_BEARER)].lower() == _BEARER:
                yield value[len(_BEARER) :].strip()
            case b"x-api-key":
                yield value


AcceptedKeys = Callable[[], ApiKeys | None]
"""Returns the keys that are accepted now; None if no key is required."""


def read_keys(path: Path) -> ApiKeys:
    """Read a file with one key per line; skip empty lines and lines that begin with ``#``.

    Raises:
        ValueError: if the file has no key, or a key is too short or has characters not allowed in headers.
            The message contains no key.
        OSError: if the file cannot be read.
    """
    keys = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if len(key) < _SHORTEST_KEY:
            raise ValueError(f"{path}, line {number}: the key must have at least {_SHORTEST_KEY} characters")
        if not all(0x20 < byte < 0x7F for byte in key):
            raise ValueError(
                f"{path}, line {number}: the key has a character that headers cannot carry; use visible "
                "ASCII characters without spaces"
            )
        keys.append(key)
    if not keys:
        raise ValueError(f"{path} contains no keys; write one key per line")
    return ApiKeys(keys)


@dataclass(slots=True, eq=False)
class RequireKey:
    """An ASGI app that responds 401 to requests without an accepted key.

    Attributes:
        app: serves all other requests.
        keys: returns the accepted keys.
        error: writes the 401 response.
        free: the routes of the app that need no key.
    """

    app: ASGIApp
    keys: AcceptedKeys
    error: WriteError
    free: Sequence[BaseRoute]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = self.keys()
        if keys is None or self._is_free(scope) or keys.admit(scope["headers"]):
            await self.app(scope, receive, send)
            return
        refusal = self.error(scope, 401, REFUSAL, {"www-authenticate": "Bearer"})
        await refusal(scope, receive, send)

    def _is_free(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self.free)


@dataclass(slots=True, eq=False)
class RefuseOtherSites:
    """An ASGI app that responds 403 to changing requests that a page of another site caused (CSRF).

    Attributes:
        app: serves all other requests.
        allowed_hosts: returns the server's names, in addition to addresses and localhost.
        error: as for :class:`RequireKey`.
    """

    app: ASGIApp
    allowed_hosts: Callable[[], Collection[str]]
    error: WriteError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_change = scope["type"] == "http" and scope["method"] not in _SAFE
        reason = _other_site(dict(scope["headers"]), self.allowed_hosts()) if is_change else ""
        if not reason:
            await self.app(scope, receive, send)
            return
        await self.error(scope, 403, reason, {})(scope, receive, send)


def other_site(headers: Mapping[bytes, bytes]) -> str:
    """Return why a request comes from another site's page; empty if not. Only browsers are recognized."""
    origin, site, host = (headers.get(name) for name in (b"origin", b"sec-fetch-site", b"host"))
    if site in (None, b"same-origin", b"none") and (origin is None or _is_at(origin, host or b"")):
        return ""
    named = (origin or site or b"").decode("latin-1")[:100]
    return f"a page of another site ({named}) may not change this server"


def _other_site(headers: Mapping[bytes, bytes], allowed_hosts: Collection[str]) -> str:
    """Return why a request may come from another site's page, also one that has a name for this server."""
    if b"origin" not in headers and b"sec-fetch-site" not in headers:
        return ""
    if reason := other_site(headers):
        return reason
    host = headers.get(b"host")
    if not names_us(host or b"", allowed_hosts):
        return (
            f"{host_name(host or b'')[:100]!r} may be another site's name for this server; browsers must use "
            "an address, localhost or a name of --allowed-hosts"
        )
    return ""


def _is_at(origin: bytes, host: bytes) -> bool:
    """Return True if an origin is at a host, whose port a proxy may have dropped."""
    place = origin.lower().partition(b"://")[2]
    has_port = host.rpartition(b":")[2].isdigit()
    return bool(place) and (place == host.lower() if has_port else host_name(place) == host_name(host))


def _digest(key: bytes) -> bytes:
    return hmac.digest(_DIGEST_KEY, key, "sha256")


def read_origin(text: str) -> bytes:
    """Return an origin as browsers send it, or ``*`` for all.

    Raises:
        ValueError: if the text is neither.
    """
    origin = text.lower()
    if origin != _ANY.decode() and (not _ORIGIN.fullmatch(origin) or _IMPLIED_PORT.fullmatch(origin)):
        raise ValueError(
            f"{text!r} is not an origin; give scheme, host and any port that the scheme does not imply, such "
            "as https://app.example.com or http://localhost:5173, or * for all origins"
        )
    return origin.encode()


def without_cors(headers: Iterable[Header]) -> Iterator[Header]:
    """Yield the headers of a server behind the proxy without those by which it allows origins itself."""
    return (header for header in headers if not header[0].lower().startswith(_PREFIX))


@dataclass(frozen=True, slots=True)
class AllowedOrigins:
    """The origins whose pages may call the API (CORS, of the Fetch standard); ``*`` stands for all.

    Credentials are never allowed: with a header for them, a page could use what the browser alone has, such
    as a client certificate. API keys come in headers that the page sets itself.
    """

    origins: frozenset[bytes]

    def admit(self, request: Iterable[Header]) -> bytes:
        """Return the allowed origin for a request with these headers; empty if its origin is not allowed."""
        if _ANY in self.origins:
            return _ANY
        origin = next((value for name, value in request if name.lower() == b"origin"), b"")
        return origin if origin in self.origins else b""

    def headers(self, request: Iterable[Header]) -> list[Header]:
        """Return the headers of the response to a request with these headers."""
        origin = self.admit(request)
        vary = [] if origin == _ANY else [_VARY]
        if not origin:
            return vary
        return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", b"*"), *vary]


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
