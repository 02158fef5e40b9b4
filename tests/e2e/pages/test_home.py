"""The page at / in a browser: its commands work, and so do its links."""

from __future__ import annotations

import shlex

import httpx
from playwright.sync_api import Browser, Route, expect

from tests.e2e.pages.browser import HANG_MS, browser, needs_chromium
from tests.e2e.pages.readability import faults_of
from tests.e2e.server import HTTP, SERVICES, serving

__all__ = ["browser"]

MODELS = f"{SERVICES / 'models.py'}:Models"


def run_curl(command: str) -> httpx.Response:
    name, url, *words = shlex.split(command)
    given = list(zip(words[::2], words[1::2], strict=True))
    headers = dict(value.split(": ") for option, value in given if option == "-H")
    [body] = [value for option, value in given if option == "-d"]
    assert (name, len(given)) == ("curl", len(headers) + 1)
    return HTTP.post(url, content=body.encode(), headers=headers)


@needs_chromium
def test_the_page_can_be_used(browser: Browser) -> None:
    """At the address that the browser has, whatever the server takes for its own; no error is logged."""
    with serving(MODELS) as server:
        base = server.base

        def mistake_address(route: Route) -> None:
            """Answer as a server whose clients use another address than it sees, behind a proxy."""
            reply = route.fetch()
            route.fulfill(response=reply, body=reply.text().replace(base, "http://inside:1"))

        page = browser.new_page()
        page.set_default_timeout(HANG_MS)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.route(f"{base}/", mistake_address)
        page.goto(f"{base}/")

        expect(page.get_by_role("heading", level=1)).to_contain_text("Models ready")
        commands = page.locator("pre").all_inner_texts()
        assert len(commands) == 3
        for command in commands:
            assert command.startswith(f"curl {base}/")
            assert run_curl(command).status_code == 200
        addresses = [link.get_attribute("href") for link in page.get_by_role("link").all()]
        assert {"docs", "dashboard", "status", "metrics", "v2/models/models"} < set(addresses)
        for address in addresses:
            assert HTTP.get(f"{base}/{address}").status_code == 200
        assert faults_of(page) == []
        assert complaints == []
        page.close()
