"""Serves the scripts, styles and pictures of our pages, also those from installed packages.

Pages load nothing from elsewhere, so they work without a network.
"""

import asyncio
import gzip
import hashlib
import importlib.util
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from uncork_gateway.dialects.accept import choose
from uncork_gateway.errors import PROBLEM_JSON
from uncork_gateway.pages.nearest import problem_response
from uncork_workers.extras import install_command

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_YEAR_S = 365 * 24 * 3600
# Pages load scripts and styles from their own gateway only, and connect to no other host.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
THEME = {name: Path(__file__).parent / "theme" / name for name in ("theme.css", "theme.js")}
"""The colors that all pages share. A page loads both files, and has a ``select`` with the id ``theme``."""
_NOSNIFF = {"x-content-type-options": "nosniff"}
_HTML = "text/html"
INSTALL_PAGES = install_command("pages")
"""The command that installs the packages whose files the pages load."""


class Assets:
    """Files under one path. Each is read and compressed in a thread when first requested, then cached.

    Args:
        prefix: the path of the page that loads them, such as ``/docs``; they are at ``/docs/NAME``.
    """

    def __init__(self, prefix: str, files: Mapping[str, Path]) -> None:
        self._prefix = prefix
        self._files = dict(files)
        self._packed: dict[str, tuple[bytes, bytes, str]] = {}
        self._packing = asyncio.Lock()

    def route(self) -> Route:
        return Route(f"{self._prefix}/{{name}}", self._serve)

    async def url(self, name: str) -> str:
        """Return a file's URL, relative to the page at ``prefix``; it changes with the file."""
        *_, version = await self._pack(name)
        return f"{self._prefix.rpartition('/')[2]}/{name}?v={version}"

    async def urls(self) -> dict[str, str]:
        """Return the URLs of all files by their names as identifiers: ``docs.js`` is ``docs_js``."""
        return {re.sub(r"\W", "_", name): await self.url(name) for name in self._files}

    async def _serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            # Not with the text of unknown routes, which names those that need a key.
            return problem_response(request.scope, 404, f"there is no file {name!r}")
        packed, plain, version = await self._pack(name)
        # A URL with a version never changes its content.
        this = request.query_params.get("v") == version
        headers = {
            "etag": f'"{version}"',
            "cache-control": f"public, max-age={_YEAR_S}, immutable" if this else "no-cache",
            "vary": "accept-encoding",
            **_NOSNIFF,
        }
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        media_type = _MEDIA_TYPES[self._files[name].suffix]
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, headers={**headers, "content-encoding": "gzip"}, media_type=media_type)
        return Response(plain, headers=headers, media_type=media_type)

    async def _pack(self, name: str) -> tuple[bytes, bytes, str]:
        """Return a file, compressed and as it is, and its version."""
        async with self._packing:
            if name not in self._packed:
                self._packed[name] = await asyncio.to_thread(_pack, self._files[name])
        return self._packed[name]


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed package, else None. Importing the package could take a second."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


async def not_installed(request: Request) -> Response:
    """Return the 501 that says how to install the package that a page needs."""
    detail = f"This page is not installed. On the server, run: {INSTALL_PAGES}"
    if wants_html(request, instead_of=PROBLEM_JSON):
        html = f"<!doctype html><title>Not installed</title><p>{escape(detail, quote=False)}</p>"
        return html_page(html, status=501)
    return problem_response(request.scope, 501, detail)


def wants_html(request: Request, *, instead_of: str) -> bool:
    """Return True if a client prefers a page to another media type, the default."""
    accept = [value for name, value in request.scope["headers"] if name == b"accept"]
    return choose(accept, [instead_of, _HTML]) == _HTML


def html_page(html: str, status: int = 200) -> Response:
    """Return a page that loads files and data from this server only."""
    headers = {
        "content-security-policy": _POLICY,
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
    }
    return Response(html, status, headers={**headers, **_NOSNIFF}, media_type=_HTML)


def _pack(path: Path) -> tuple[bytes, bytes, str]:
    """Return a file, compressed and as it is, and a hash of its content."""
    plain = path.read_bytes()
    # A fixed time in the gzip header: the same file must have the same version in every process.
    return gzip.compress(plain, mtime=0), plain, hashlib.sha256(plain).hexdigest()[:16]
