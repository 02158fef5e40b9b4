"""The routes of the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from uncork_gateway.pages.assets import Assets, html_page, not_installed, package_folder
from uncork_gateway.pages.dashboard.feed import Feed, Source

PREFIX = "/dashboard"
PACKAGE = "plotly"
"""The package with the JavaScript that draws, of ``uncork[pages]``."""
_OURS = Path(__file__).parent / "files"
_PLOTLY = "plotly.js"
_RETRY_S = "5"


class Dashboard:
    """The page, its files and its events.

    Only the events tell something of the server: a browser that is told to open a page sends no API key, so
    the page and its files may be had by everybody.

    Args:
        source: what it shows.
        error: writes an answer from path, status, detail and headers.
        apart: whether the page is on another port than the apis.
    """

    def __init__(
        self,
        source: Source,
        *,
        error: Callable[[str, int, str, dict[str, str]], Response],
        apart: bool,
    ) -> None:
        self._feed = Feed(source)
        self._error = error
        self._apart = apart
        ours = {path.name: path for path in _OURS.iterdir() if path.suffix != ".html"}
        self._assets: Assets | None = None
        if plotly := package_folder(PACKAGE):
            files = {**ours, _PLOTLY: plotly / "package_data/plotly.min.js"}
            self._assets = Assets(f"{PREFIX}/files", files)
        self.close = self._feed.close
        """End the streams of events, with a last one."""

    def page_routes(self) -> list[Route]:
        """What tells nothing of the server."""
        if self._assets is None:
            return [Route(PREFIX, not_installed)]
        return [Route(PREFIX, partial(self._page, self._assets)), self._assets.route()]

    def event_routes(self) -> list[Route]:
        """What tells what goes on."""
        return [Route(f"{PREFIX}/events", self._events)]

    async def _page(self, assets: Assets, request: Request) -> Response:
        urls = {name: f"{PREFIX[1:]}/{url}" for name, url in (await assets.urls()).items()}
        html = Template((_OURS / "index.html").read_text())
        # Commands on the page name the address that a client would use, which the page cannot know there.
        return html_page(html.substitute(urls, origin="http://GATEWAY" if self._apart else ""))

    async def _events(self, request: Request) -> Response:
        refusal = self._feed.why_no_more
        if refusal:
            return self._error(request.url.path, 503, refusal, {"retry-after": _RETRY_S})
        # No proxy on the way may wait for more before it hands an event on.
        headers = {
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-content-type-options": "nosniff",
        }
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return StreamingResponse(self._feed.frames(), headers=headers, media_type="text/event-stream")
