"""The routes of the dashboard."""

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

    A browser that opens a page sends no API key, so the page and its files require none. Only the events
    reveal anything about the server.

    Args:
        error: writes an error from path, status, detail and headers.
        apart: whether the page is on another port than the APIs.
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
        """End the streams of events after a last one."""

    def page_routes(self) -> list[Route]:
        """Return the routes that reveal nothing about the server."""
        if self._assets is None:
            return [Route(PREFIX, not_installed)]
        return [Route(PREFIX, partial(self._page, self._assets)), self._assets.route()]

    def event_routes(self) -> list[Route]:
        return [Route(f"{PREFIX}/events", self._events)]

    async def _page(self, assets: Assets, request: Request) -> Response:
        urls = {name: f"{PREFIX[1:]}/{url}" for name, url in (await assets.urls()).items()}
        html = Template((_OURS / "index.html").read_text())
        # Commands on the page contain the address for clients, which is unknown on an admin port.
        return html_page(html.substitute(urls, origin="http://GATEWAY" if self._apart else ""))

    async def _events(self, request: Request) -> Response:
        refusal = self._feed.why_no_more
        if refusal:
            return self._error(request.url.path, 503, refusal, {"retry-after": _RETRY_S})
        # A proxy must not buffer events.
        headers = {
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-content-type-options": "nosniff",
        }
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return StreamingResponse(self._feed.frames(), headers=headers, media_type="text/event-stream")
