"""The dashboard in headless Chromium: bytes, time to the first chart, pictures."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from PIL import Image

from uncork_loadtests.servers import BenchError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

_SIZE = {"width": 1440, "height": 900}
_LIMIT_MS = 30_000
_REDRAWN_MS = 2500
# The time of the first point in the first chart, since the browser began to load the page.
_FIRST_CHART = "() => document.querySelector('[data-chart=sizes] .point') && performance.now()"
# When the first event has been shown.
_LIVE = "() => document.querySelector('[data-f=live][data-tone=good]')"
_ALONE = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@dataclass(frozen=True, kw_only=True)
class Look:
    """One load of the page.

    Attributes:
        bytes_of: bytes over the wire by file, heads included.
        first_chart_ms: time to the first point in the first chart.
    """

    bytes_of: dict[str, int]
    first_chart_ms: float


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless browser; raise BenchError if none is installed."""
    path = shutil.which("chromium")
    if path is None:
        raise BenchError("there is no chromium: apt-get install chromium")
    # Imported here: only the extra dev has it.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_ALONE)
        yield browser
        browser.close()


def open_cold_and_warm(browser: Browser, url: str) -> tuple[Look, Look]:
    """Open the page with an empty cache, and again with the filled one."""
    with browser.new_context() as context:
        page = context.new_page()
        return _look(page, url), _look(page, url)


def _look(page: Page, url: str) -> Look:
    finished: list[Request] = []

    def note(request: Request) -> None:
        finished.append(request)

    page.on("requestfinished", note)
    page.goto(url)
    first_chart_ms: float = page.wait_for_function(_FIRST_CHART, timeout=_LIMIT_MS).json_value()
    sizes = {urlsplit(request.url).path: request.sizes() for request in finished}
    page.remove_listener("requestfinished", note)
    page.goto("about:blank")
    return Look(
        bytes_of={
            path: size["responseBodySize"] + size["responseHeadersSize"] for path, size in sizes.items()
        },
        first_chart_ms=first_chart_ms,
    )


@contextlib.contextmanager
def watching(browser: Browser, url: str) -> Iterator[Page]:
    """Keep the page open and live until the block ends."""
    with browser.new_context(viewport=_SIZE) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url)
        page.wait_for_function(_LIVE, timeout=_LIMIT_MS)
        yield page


def take_picture(page: Page, path: Path, *, width: int = _SIZE["width"], scheme: str = "light") -> None:
    """Write a picture of the whole page."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": _SIZE["height"]})
    # Until the charts have been drawn for this size, with the next event.
    page.wait_for_timeout(_REDRAWN_MS)
    # The page has few colors: a palette makes the file a third as large.
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
