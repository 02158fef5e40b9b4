"""The routes of the dashboard."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from string import Template

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Send

from uncork_gateway.auth import WriteError
from uncork_gateway.pages.assets import THEME, Assets, html_page, not_installed, package_folder
from uncork_gateway.pages.dashboard.feed import Commands, Feed
from uncork_gateway.pages.dashboard.history import History
from uncork_gateway.pages.status.service_status import StatusBuilder

_PATIENCE_S = 10.0
# A proxy must not buffer events.
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
MEDIA_TYPE = "text/event-stream"
PREFIX = "/dashboard"
PACKAGE = "plotly"
"""The package with the JavaScript that draws, of ``uncork[pages]``."""
_OURS = Path(__file__).parent / "files"
_PLOTLY = "plotly.js"
_RETRY_S = "5"
ORIGIN = "http://GATEWAY"
"""Stands for the address of the server in commands; the page replaces it if it knows the address."""


class EventStream(StreamingResponse):
    """Sends server-sent events until they end, or the client disconnects or stops reading.

    A client that has stopped reading blocks the next frame, perhaps for hours: its operating system still
    acknowledges packets. After ten seconds the connection is aborted.
    """

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        super().__init__(frames, headers=HEADERS, media_type=MEDIA_TYPE)
        self._frames = frames

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(_PATIENCE_S):
                await send(message)

        async with aclosing(self._frames):
            try:
                await super().stream_response(send_in_time)
            except TimeoutError:
                raise ClientDisconnect from None


class Dashboard:
    """The page, its files and its events.

    The page and its files require no API key, because browsers send none when opening a page. Only the events
    reveal anything about the server.

    Args:
        commands: returns commands that call APIs at :data:`ORIGIN`.
        apart: True if the page and the APIs are on different ports.
        is_admitted: returns True while a viewer may have events: its key may be revoked.
    """

    def __init__(
        self,
        source: StatusBuilder,
        commands: Commands,
        *,
        error: WriteError,
        apart: bool,
        is_admitted: Callable[[Request], bool],
    ) -> None:
        self._figures = source.figures
        self._history = History()
        self._feed = Feed(source.status, source.batches_after, self._history, commands)
        self._error = error
        self._apart = apart
        self._is_admitted = is_admitted
        ours = {path.name: path for path in _OURS.iterdir() if path.suffix != ".html"}
        self._assets: Assets | None = None
        if plotly := package_folder(PACKAGE):
            files = {**THEME, **ours, _PLOTLY: plotly / "package_data/plotly.min.js"}
            self._assets = Assets(f"{PREFIX}/files", files)

    def start(self) -> None:
        """Start recording the history, if the page is installed. Call it inside a running event loop."""
        if self._assets is not None:
            self._history.start(self._figures)

    def close(self) -> None:
        """Stop recording the history, and send all viewers a last event."""
        self._history.stop()
        self._feed.close()

    def page_routes(self) -> list[Route]:
        """Return the routes that reveal nothing about the server."""
        if self._assets is None:
            return [Route(PREFIX, not_installed)]
        return [Route(PREFIX, partial(self._page, self._assets)), self._assets.route()]

    def event_routes(self) -> list[Route]:
        return [Route(f"{PREFIX}/events", self._events)]

    async def _page(self, assets: Assets, request: Request) -> Response:
        urls = {name: f"{PREFIX[1:]}/{url}" for name, url in (await assets.urls()).items()}
        html = Template((_OURS / "index.html").read_text(encoding="utf-8"))
        # The page is at the address of the APIs, unless it is on an admin port.
        return html_page(html.substitute(urls, origin=ORIGIN if self._apart else ""))

    async def _events(self, request: Request) -> Response:
        refusal = self._feed.why_no_more
        if refusal:
            return self._error(request.scope, 503, refusal, {"retry-after": _RETRY_S})
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type=MEDIA_TYPE)
        return EventStream(self._frames(request))

    async def _frames(self, viewer: Request) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._feed.frames()) as frames:
            async for frame in frames:
                if not self._is_admitted(viewer):
                    return
                yield frame
