"""The page at ``/``: liveness as JSON for programs, APIs and links for browsers."""

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from uncork_gateway.auth import AcceptedKeys
from uncork_gateway.pages import docs
from uncork_gateway.pages.assets import INSTALL_PAGES, THEME, Assets, html_page, package_folder, wants_html
from uncork_gateway.pages.curl import curl
from uncork_gateway.pages.dashboard import page as dashboard
from uncork_workers.wire.schema import JSON, ApiDescription

DASHBOARD = "Dashboard"
FOR_OPERATORS = {DASHBOARD: "dashboard", "Status": "status", "Metrics": "metrics"}
FOR_CLIENTS = {"Docs": "docs", "OpenAPI": "openapi.json"}
"""Paths of pages by title."""

_PACKAGES = {DASHBOARD: dashboard.PACKAGE, "Docs": docs.PACKAGE}
_PREFIX = "/docs/home"
_OURS = Path(__file__).parent
_DASHBOARD = _OURS.parent / "dashboard/files"
# The answer of KServe's servers.
_ALIVE = {"status": "alive"}
_NAME = "Uncork"
_HOST = re.compile(r"[\w.:\[\]-]+", re.ASCII)
_LOCKED = {
    "name": _NAME,
    "state": "",
    "text": "This server requires an API key, sent as <code>Authorization: Bearer KEY</code> or "
    "<code>X-Api-Key: KEY</code>. The docs page asks for it.",
    "sections": "",
}


class Home(NamedTuple):
    """The content of the page; ``not_ready_reason`` is empty if the service is ready."""

    name: str | None
    text: str = ""
    not_ready_reason: str = ""
    apis: Sequence[ApiDescription] = ()
    models: Sequence[str] = ()


def home_routes(
    home: Callable[[], Home], links: Mapping[str, str], *, keys: AcceptedKeys = lambda: None
) -> list[Route]:
    """Return the routes of the page and its files; they require no API key.

    Args:
        links: paths of the pages that the reader can open, by title.
        keys: returns the API keys that open the full page; None if it needs no key.
    """
    shared = {name: _DASHBOARD / name for name in ("dashboard.css", "icon.svg")}
    own = {name: _OURS / name for name in ("home.css", "home.js")}
    assets, links_to_pages = Assets(_PREFIX, shared | THEME | own), _links(links)

    async def answer(request: Request) -> Response:
        if wants_html(request, instead_of=JSON):
            reply = html_page(await page(request))
        else:
            reply = JSONResponse(_ALIVE)
        reply.headers["vary"] = "accept"
        return reply

    async def page(request: Request) -> str:
        accepted = keys()
        if accepted is None or accepted.admit(request.scope["headers"]):
            parts = _parts(home(), base_url=_base_url(request), wants_key=accepted is not None)
            parts["links"] = links_to_pages
        else:
            parts = {**_LOCKED, "links": _links({"Docs": FOR_CLIENTS["Docs"]})}
        files = {name: f"docs/{url}" for name, url in (await assets.urls()).items()}
        return Template((_OURS / "home.html").read_text(encoding="utf-8")).substitute(parts, **files)

    return [Route("/", answer), assets.route()]


def _parts(home: Home, *, base_url: str, wants_key: bool) -> dict[str, str]:
    sections = [_api(api, base_url, wants_key=wants_key) for api in home.apis]
    if home.models:
        sections.append(_models(home.models))
    tone, state = ("warn", "not ready") if home.not_ready_reason else ("good", "ready")
    return {
        "name": escape(home.name or _NAME),
        "state": f'<span class="pill" data-tone="{tone}">{state}</span>',
        "text": escape(home.not_ready_reason or _first_line(home.text)),
        "sections": "".join(sections),
    }


def _api(api: ApiDescription, base_url: str, *, wants_key: bool) -> str:
    command = escape(curl(api, base_url, wants_key=wants_key)).replace(
        escape(base_url), f'<span class="origin">{escape(base_url)}</span>', 1
    )
    summary = f"<p>{escape(_first_line(api.doc))}</p>" if api.doc else ""
    title = f"<h2><small>POST</small> {escape(api.route)}</h2>"
    return f'<section class="card api">{title}{summary}<pre>{command}</pre></section>'


def _models(names: Sequence[str]) -> str:
    links = "".join(_link(name, f"v2/models/{name}") for name in names)
    text = "For clients of KServe, Triton and TensorFlow Serving:"
    return f'<section class="card models"><h2>Models</h2><p>{text}</p><p>{links}</p></section>'


def _links(links: Mapping[str, str]) -> str:
    html = "".join(_link(*link) for link in links.items())
    missing = [name for name in links if name in _PACKAGES and package_folder(_PACKAGES[name]) is None]
    if missing:
        install = escape(INSTALL_PAGES, quote=False)
        html += f"<p>Not installed: {', '.join(missing)}. On the server, run: <code>{install}</code></p>"
    return html


def _link(text: str, path: str) -> str:
    return f'<a href="{escape(path)}">{escape(text)}</a>'


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _base_url(request: Request) -> str:
    """Return the server's URL by the Host header. In a browser, a script replaces it with the page's own."""
    host = request.headers.get("host", "")
    address = host if _HOST.fullmatch(host) else "GATEWAY"
    return f"{request.url.scheme}://{address}{request.scope['root_path']}"
