"""The dashboard in a browser, with a real gateway behind it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import browser, needs_chromium
from tests.e2e.server import HTTP, PROBE, Server, proxying, serving

__all__ = ["browser"]

pytestmark = needs_chromium

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}
CHARTS = ("sizes", "latency", "arrivals", "failures", "times")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A gateway that has answered requests, in batches of several sizes."""
    with serving(PROBE) as running:
        ask(running, 200)
        yield running


def ask(server: Server, count: int, path: str = "/add", body: Any = (1, 2), *, status: int = 200) -> None:
    """Send requests, eight at a time; each is answered."""
    with httpx.Client(base_url=server.base) as client, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.post(path, json=body), range(count)))
    assert {reply.status_code for reply in replies} == {status}


@contextmanager
def looking(browser: Browser, server: Server, *, api: str = "", **context: Any) -> Iterator[Page]:
    """The page, live; nothing that it loads may be of another server, and it may find nothing wrong."""
    wrong: list[str] = []
    asked: list[str] = []
    with browser.new_context(**{"viewport": DESK, **context}) as opened:
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
    """A part of the page."""
    return page.locator(f"[data-f={name}]")


def points(page: Page, chart: str) -> Any:
    """The points of a chart."""
    return page.locator(f"[data-chart={chart}] .point")


def numbers(page: Page, table: str) -> dict[str, int]:
    """The counts of a table, by label."""
    rows = field(page, table).locator("tr").all()
    return {
        row.locator("b").inner_text(): int(row.locator("td").last.inner_text().replace(",", ""))
        for row in rows
    }


def test_the_page_agrees_with_the_metrics(browser: Browser, server: Server) -> None:
    """Requests, releases by reason, batches, workers."""
    with looking(browser, server, api="add") as page:
        counted = {
            reason: round(server.metric("uncork_releases_total", api="add", reason=reason))
            for reason in ("idle", "not_worth_waiting", "full", "deadline", "drain")
        }
        answered = round(server.metric("uncork_requests_total", api="add", status="200"))
        batches = round(server.metric("uncork_batch_rows_count", api="add"))

        assert answered == 200
        assert numbers(page, "answers") == {"200": answered}
        expect(field(page, "refusedSub")).to_have_text(f"0 of {answered} requests")
        expect(field(page, "errorsSub")).to_have_text(f"0 of {answered} requests")
        expect(field(page, "state")).to_have_attribute("data-tone", "good")
        shown = {label.replace(" ", "_"): count for label, count in numbers(page, "releases").items()}
        assert shown == {reason: count for reason, count in counted.items() if count}
        mean = server.metric("uncork_batch_rows_sum", api="add") / batches
        expect(field(page, "batch")).to_have_text(f"{mean:.3g} rows")
        expect(points(page, "sizes")).to_have_count(batches)
        expect(points(page, "times")).to_have_count(batches)
        expect(field(page, "workers").locator("tr")).to_have_count(1)
        assert str(server.workers()[0]) in field(page, "workers").inner_text()


def test_a_service_that_fails_looks_broken(browser: Browser) -> None:
    """Nothing is green: neither the state, nor the api, nor the tile; the exception is named."""
    with serving(PROBE) as failing, looking(browser, failing, api="fail") as page:
        expect(field(page, "verdict")).to_have_text("idle")
        ask(failing, 30, "/fail", 1, status=500)
        expect(field(page, "state")).to_have_text("failing")
        expect(field(page, "errors")).to_have_text("100 % ")
        for name in ("state", "verdict", "errorsSub"):
            expect(field(page, name)).to_have_attribute("data-tone", "bad")
        expect(field(page, "errorsSub")).to_have_text("30 of 30 requests")
        expect(field(page, "failuresText")).to_have_text(
            "100 % of 30 requests ended in an error, 0 % were refused."
        )
        expect(page.locator(".advice .grave")).to_contain_text("the handler raised RuntimeError (probe.py:")
        expect(field(page, "failure")).to_contain_text("Last exception: RuntimeError at probe.py:")
        expect(field(page, "failure")).not_to_contain_text("secret detail")
        expect(field(page, "sentence")).to_contain_text("fail is failing")
        assert page.title() == "failing: Probe · Uncork"
        assert "ready" not in field(page, "state").inner_text()


def test_the_page_follows_what_happens(browser: Browser, server: Server) -> None:
    """First there was no request, then some; charts say in words what they show."""
    with looking(browser, server, api="remember") as page:
        expect(field(page, "name")).to_have_text("remember")
        expect(field(page, "empty")).to_contain_text(f"{server.base}/remember")
        assert points(page, "sizes").count() == 0

        ask(server, 30, "/remember")
        expect(points(page, "sizes")).not_to_have_count(0)
        expect(field(page, "empty")).to_be_hidden()
        expect(field(page, "rate")).to_contain_text("rows/s")
        expect(field(page, "rateSub")).not_to_have_text("too few requests to say")
        expect(field(page, "says")).not_to_be_empty()
        expect(field(page, "latencyText")).to_contain_text("the goal is 5,000 ms")
        for chart in CHARTS:
            drawn = page.locator(f"[data-chart={chart}]")
            expect(drawn.locator(".main-svg").first).to_be_visible()
            assert drawn.get_attribute("aria-label") == field(page, f"{chart}Text").inner_text()

        field(page, "apis").get_by_text("recall").click()
        expect(field(page, "name")).to_have_text("recall")
        assert page.url.endswith("/dashboard#recall")


def test_a_fragment_that_is_no_name_shows_the_first_api(browser: Browser, server: Server) -> None:
    """When the page is opened, and later; a fragment that is one still counts."""
    first = HTTP.get(f"{server.base}/status").json()["apis"][0]["name"]
    with looking(browser, server, api="%") as page:
        expect(field(page, "name")).to_have_text(first)
        for fragment, name in (("remember", "remember"), ("%E0%A4", first)):
            page.evaluate("fragment => { location.hash = fragment; }", fragment)
            expect(field(page, "name")).to_have_text(name)


@pytest.mark.parametrize(("scheme", "viewport"), [("dark", PHONE), ("light", DESK)], ids=["dark", "light"])
def test_the_page_fits_and_can_be_read(
    browser: Browser, server: Server, scheme: str, viewport: dict[str, int]
) -> None:
    """On a phone and on a desk nothing is wider than the screen; it is as dark as its user wants it."""
    ask(server, 20)  # points of the first requests may be too old to be shown
    with looking(browser, server, api="add", viewport=viewport, color_scheme=scheme) as page:
        expect(points(page, "sizes")).not_to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert (luminance(page, "body", "backgroundColor") < 0.1) == (scheme == "dark")
        for element in ("body", ".sub", ".chips li", "[data-f=verdict]", "figcaption p"):
            assert contrast(page, element) > 4.5, element


def test_numbers_as_people_read_them(browser: Browser, server: Server) -> None:
    with looking(browser, server) as page:
        shown = page.evaluate(
            """async (values) => {
                const files = performance.getEntriesByType("resource").map((entry) => entry.name);
                return values.map((await import(files.find((name) => name.includes("format")))).number);
            }""",
            [0, 4.92e-80, 0.00012, 23.456, 12345.6],
        )

    assert shown == ["0", "0", "0.00012", "23.5", "12,346"]


def luminance(page: Page, element: str, kind: str) -> float:
    """How bright a colour of an element, or of what is below it, is: from 0 to 1 (WCAG 2)."""
    color: list[float] = page.evaluate(
        """([element, kind]) => {
            let at = document.querySelector(element);
            let color;
            do {
                color = getComputedStyle(at)[kind].match(/[\\d.]+/g).map(Number);
                at = at.parentElement;
            } while (at && color[3] === 0);
            return color.slice(0, 3);
        }""",
        [element, kind],
    )
    linear = [
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in color
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(page: Page, element: str) -> float:
    """Of the text of an element (WCAG 2)."""
    pair = [luminance(page, element, kind) for kind in ("color", "backgroundColor")]
    return (max(pair) + 0.05) / (min(pair) + 0.05)


@pytest.mark.slow
def test_a_proxy_has_the_page_which_outlives_it(browser: Browser, server: Server) -> None:
    """Models appear with their first answer; a proxy that goes is missed, its successor known as another."""
    with browser.new_context() as context:
        page = context.new_page()
        with proxying(server.base) as proxy:
            page.goto(f"{proxy.base}/dashboard")
            expect(field(page, "empty")).to_contain_text(f"{proxy.base}/v1/models/MODEL:predict")
            for count in (1, 5):
                ask(proxy, count, "/v1/models/probe.recall:predict", {"instances": [1]})
            expect(field(page, "name")).to_have_text("probe.recall")
            expect(points(page, "sizes")).not_to_have_count(0)
            expect(field(page, "empty")).to_be_hidden()
            expect(field(page, "workers")).to_contain_text(server.base)
            expect(field(page, "lost")).to_be_hidden()
        expect(field(page, "lost")).to_contain_text("The gateway cannot be reached. Trying again.")
        expect(field(page, "live")).to_have_text("lost")

        with proxying(server.base, "--port", proxy.base.rpartition(":")[2]):
            expect(field(page, "live")).to_have_text("live", timeout=10_000)
            expect(field(page, "lost")).to_be_hidden()
            expect(field(page, "empty")).to_be_visible()
            expect(field(page, "api")).to_be_hidden()


def test_behind_api_keys_the_page_says_where_to_look(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    with serving(PROBE, "--api-key-file", str(keys)) as server, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{server.base}/dashboard")
        expect(field(page, "lost")).to_have_text(
            "The gateway wants an API key, which a browser cannot send. Start it with --admin-port, and look "
            "there. Trying again."
        )
