"""The page at ``/docs``: Swagger UI, to read about the service's APIs and try them out."""

from functools import partial
from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from uncork_gateway.pages.assets import THEME, Assets, html_page, not_installed, package_folder

PREFIX = "/docs"
PACKAGE = "swagger_ui_bundle"
"""The package with the files of Swagger UI, of ``uncork[pages]``."""
_OURS = Path(__file__).parent


def docs_routes() -> list[Route]:
    """Return the routes of Swagger UI, which shows ``/openapi.json``, and of its files.

    The page requires no API key, because browsers send none when opening a page; it asks for the key and
    sends it when it requests the document.
    """
    package = package_folder(PACKAGE)
    if package is None:
        return [Route(PREFIX, not_installed)]
    [swagger] = package.glob("vendor/swagger-ui-*")
    assets = Assets(
        PREFIX,
        {
            "swagger-ui.css": swagger / "swagger-ui.css",
            "swagger-ui-bundle.js": swagger / "swagger-ui-bundle.js",
            "icon.svg": _OURS.parent / "dashboard/files/icon.svg",
            **THEME,
            "docs.css": _OURS / "docs.css",
            "docs.js": _OURS / "docs.js",
        },
    )
    return [Route(PREFIX, partial(_page, assets)), assets.route()]


async def _page(assets: Assets, request: Request) -> Response:
    text = (_OURS / "docs.html").read_text(encoding="utf-8")
    return html_page(Template(text).substitute(await assets.urls()))
