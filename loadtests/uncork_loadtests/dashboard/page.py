"""The dashboard in headless Chromium: how much is loaded, how soon it draws, and how it looks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from uncork_loadtests.servers import BenchError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

_SIZE = {"width": 1440, "height": 900}
_LIMIT_MS = 30_000
# When there is a point in the first chart; the time is since the browser began to load the page.
_FIRST_CHART = "() => document.querySelector('[data-chart=sizes] .point') && performance.now()"
_ALONE = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@dataclass(frozen=True, kw_only=True)
class Look:
    """One time that the page was opened.

    Attributes:
        bytes_of: what came over the wire, heads included, by file.
        first_chart_ms: when there were points in the first chart.
    """

    bytes_of: dict[str, int]
    first_chart_ms: float


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; BenchError if there is none."""
    path = shutil.which("chromium")
    if path is None:
        raise BenchError("there is no chromium: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise BenchError("the dashboard is measured with playwright: pip install playwright") from error
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_ALONE)
        yield browser
        browser.close()


def open_cold_and_warm(browser: Browser, url: str) -> tuple[Look, Look]:
    """Open the page with an empty cache, and again with what that has left there."""
    with browser.new_context() as context:
        page = context.new_page()
        return _look(page, url), _look(page, url)


def _look(page: Page, url: str) -> Look:
    finished: list[Request] = []
    page.on("requestfinished", finished.append)
    page.goto(url)
    first_chart_ms: float = page.wait_for_function(_FIRST_CHART, timeout=_LIMIT_MS).json_value()
    sizes = {urlsplit(request.url).path: request.sizes() for request in finished}
    page.remove_listener("requestfinished", finished.append)
    page.goto("about:blank")
    return Look(
        bytes_of={
            path: size["responseBodySize"] + size["responseHeadersSize"] for path, size in sizes.items()
        },
        first_chart_ms=first_chart_ms,
    )


@contextlib.contextmanager
def watching(browser: Browser, url: str, *, dark: bool = False) -> Iterator[Page]:
    """Have the page open, and live, until the block ends."""
    scheme = "dark" if dark else "light"
    with browser.new_context(viewport=_SIZE, color_scheme=scheme) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url)
        page.wait_for_function("document.querySelector('[data-f=live]').dataset.tone === 'good'")
        yield page


def take_picture(page: Page, path: Path) -> None:
    """The whole page, however long."""
    page.screenshot(path=path, full_page=True)
