"""The page at ``/docs``: Swagger UI, to read about the service's APIs and try them out."""

from __future__ import annotations

from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from uncork_gateway.pages.assets import Assets, html_page, package_folder

PREFIX = "/docs"
_OURS = Path(__file__).parent


class DocsPage:
    """Swagger UI over ``/openapi.json`` and its files, the same for every service.

    A browser that opens a page sends no API key. So the page itself requires none; it asks for the key and
    sends it with the request for the document.
    """

    def __init__(self) -> None:
        [swagger] = package_folder("swagger_ui_bundle").glob("vendor/swagger-ui-*")
        self._assets = Assets(
            PREFIX,
            {
                "swagger-ui.css": swagger / "swagger-ui.css",
                "swagger-ui-bundle.js": swagger / "swagger-ui-bundle.js",
                "icon.png": swagger / "favicon-32x32.png",
                "docs.css": _OURS / "docs.css",
                "docs.js": _OURS / "docs.js",
            },
        )

    def routes(self) -> list[Route]:
        """Return the routes of the page and its files."""
        return [Route(PREFIX, self._page), self._assets.route()]

    async def _page(self, request: Request) -> Response:
        return html_page(Template(_PAGE).substitute(await self._assets.urls()))


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API</title>
<link rel="icon" href="$icon_png">
<link rel="stylesheet" href="$swagger_ui_css">
<link rel="stylesheet" href="$docs_css">
<form id="key" hidden>
  <label for="key-text">API key</label>
  <input id="key-text" type="password" autocomplete="off" required>
  <button>Show</button>
</form>
<p id="message" role="status">Loading …</p>
<div id="api"></div>
<noscript>This page needs JavaScript. What it shows is at <a href="openapi.json">openapi.json</a>.</noscript>
<script src="$swagger_ui_bundle_js"></script>
<script src="$docs_js"></script>
</html>
"""
