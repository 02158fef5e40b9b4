"""The dashboard in a browser, and what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, Page, expect

from tests.e2e.pages.browser import HANG_MS
from tests.e2e.server import Server
from tests.loops import HANG_S

DESK = {"width": 1440, "height": 900}


def ask(server: Server, count: int, path: str = "/add", body: Any = (1, 2), *, status: int = 200) -> None:
    """Send requests, eight at a time; each is answered."""
    with httpx.Client(base_url=server.base, timeout=HANG_S) as client, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.post(path, json=body), range(count)))
    assert {reply.status_code for reply in replies} == {status}


@contextmanager
def looking(browser: Browser, server: Server, *, api: str = "", **context: Any) -> Iterator[Page]:
    """The page, live; nothing that it loads may be of another server, and it may find nothing wrong."""
    wrong: list[str] = []
    asked: list[str] = []
    with browser.new_context(**{"viewport": DESK, **context}) as opened:
        opened.set_default_timeout(HANG_MS)
        page = opened.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type != "log" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{server.base}/dashboard#{api}")
        expect(field(page, "live")).to_have_text("live")
        yield page
    assert not wrong
    hosts = {urlsplit(url).netloc for url in asked if not url.startswith("data:")}
    assert hosts == {urlsplit(server.base).netloc}


def field(page: Page, name: str) -> Any:
    return page.locator(f"[data-f={name}]")


def points(page: Page, chart: str) -> Any:
    return page.locator(f"[data-chart={chart}] .point")


def rows(page: Page, name: str) -> dict[str, int]:
    """The counts of a list, by key."""
    return {
        row.get_attribute("data-key"): int(row.locator("span").inner_text().replace(",", ""))
        for row in field(page, name).locator("li").all()
    }
