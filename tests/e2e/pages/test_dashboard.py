"""The dashboard in a browser, with a real gateway behind it: what it shows of one service."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.pages.browser import LIGHT, browser, needs_chromium
from tests.e2e.pages.dashboard import ask, field, looking, points, rows
from tests.e2e.pages.readability import faults_of
from tests.e2e.server import HTTP, PROBE, Server, eventually, serving
from tests.loops import HANG_S

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, needs_chromium]

CHARTS = ("latency", "sizes", "rates", "queue", "times")
"""Those that are drawn if nothing fails."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A gateway that has answered requests, in batches of several sizes."""
    with serving(PROBE) as running:
        ask(running, 200)
        yield running


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
        assert rows(page, "answers") == {"answered": answered}
        expect(field(page, "errorRate")).to_have_text("0 %")
        expect(field(page, "errorRateSub")).to_have_text(f"0 of {answered} requests")
        expect(field(page, "answeredSub")).to_contain_text(f"{answered} requests in ")
        for name in ("errors", "refused"):
            expect(field(page, name)).to_have_text("0")
        expect(field(page, "apiState")).to_have_attribute("data-tone", "good")
        assert rows(page, "releases") == {reason: count for reason, count in counted.items() if count}
        mean = server.metric("uncork_batch_rows_sum", api="add") / batches
        expect(field(page, "batch")).to_have_text(f"{mean:.2g} rows")
        expect(points(page, "sizes")).to_have_count(batches)
        expect(points(page, "times")).to_have_count(batches)
        expect(field(page, "workers").locator("tr")).to_have_count(1)
        assert str(server.workers()[0]) in field(page, "workers").inner_text()
        expect(field(page, "utilization")).to_contain_text("%")
        # Unknown while batch times scatter too much to tell how they grow with the size.
        expect(field(page, "saturation")).to_have_text(re.compile(r"%|\u2013"))


def test_a_service_that_fails_looks_broken(browser: Browser) -> None:
    """Nothing is green: neither the state, nor the API, nor the tile; the exception is named."""
    with serving(PROBE) as failing, looking(browser, failing, api="fail") as page:
        ask(failing, 30, "/fail", 1, status=500)
        expect(field(page, "state")).to_have_text("failing")
        expect(field(page, "errorRate")).to_have_text("100 %")
        expect(field(page, "errorRateSub")).to_have_text("30 of 30 requests")
        for name in ("state", "apiState", "errorRateSub", "errorsSub"):
            expect(field(page, name)).to_have_attribute("data-tone", "bad")
        expect(field(page, "errors")).to_have_text("30")
        expect(field(page, "errorsSub")).to_have_text("30 \N{MULTIPLICATION SIGN} 500")
        expect(field(page, "failuresText")).to_have_text("Of 30 requests, 100 % failed and 0 % were refused.")
        assert rows(page, "answers") == {"failed": 30}
        expect(page.locator(".advice [data-tone=bad]")).to_contain_text("RuntimeError (probe.py:")
        expect(field(page, "failure")).to_contain_text("Last exception: RuntimeError at probe.py:")
        expect(field(page, "failure")).not_to_contain_text("secret detail")
        expect(page.locator("[data-chart=failures] .annotation")).not_to_have_count(0)
        assert page.title() == "failing: Probe · Uncork"
        assert "ready" not in field(page, "state").inner_text()


def test_refusals_have_reasons_and_are_no_failures(browser: Browser, server: Server) -> None:
    """A request whose own deadline passes gets 504; no row has that status beside the refusal."""
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(httpx.post, f"{server.base}/sleep", json=1, timeout=HANG_S)
        eventually(lambda: "running 1 row" in HTTP.get(f"{server.base}/status").text)
        late = HTTP.post(f"{server.base}/sleep", json=0, headers={"x-request-timeout-ms": "20"})
        assert (late.status_code, slow.result().status_code) == (504, 200)
        with looking(browser, server, api="sleep") as page:
            assert rows(page, "answers") == {"answered": 1, "refused": 1}
            why = "1 \N{MULTIPLICATION SIGN} the client's deadline had passed"
            expect(field(page, "answers")).to_contain_text(why)
            expect(field(page, "refused")).to_have_text("1")
            expect(field(page, "errors")).to_have_text("0")


def test_the_page_follows_what_happens(browser: Browser, server: Server) -> None:
    """First there was no request, then some; charts say in words what they show."""
    with looking(browser, server, api="remember") as page:
        expect(field(page, "emptyTitle")).to_have_text("No request to remember yet")
        expect(field(page, "emptyCode")).to_contain_text(f"curl {server.base}/remember")
        expect(field(page, "api")).to_be_hidden()

        ask(server, 30, "/remember")
        expect(points(page, "sizes")).not_to_have_count(0)
        expect(field(page, "empty")).to_be_hidden()
        expect(field(page, "name")).to_have_text("remember")
        expect(field(page, "rate")).to_contain_text("rows/s")
        expect(field(page, "says")).not_to_be_empty()
        expect(field(page, "latencyText")).to_contain_text("goal 60 s")
        for chart in CHARTS:
            drawn = page.locator(f"[data-chart={chart}]")
            expect(drawn.locator(".main-svg").first).to_be_visible()
            assert drawn.get_attribute("aria-label") == field(page, f"{chart}Text").inner_text()
        expect(page.locator("[data-chart=failures]")).to_contain_text("No errors and no refusals in the last")

        field(page, "apis").get_by_text("recall").click()
        expect(field(page, "emptyTitle")).to_have_text("No request to recall yet")
        assert page.url.endswith("/dashboard#recall")


def test_a_page_that_is_opened_later_has_the_past(browser: Browser, server: Server) -> None:
    """The gateway remembers it; nobody has to watch."""
    ask(server, 30)

    def points_kept() -> int:
        with HTTP.stream("GET", f"{server.base}/dashboard/events") as reply:
            event = json.loads(next(reply.iter_lines()).removeprefix("data: "))
        return len(event["history"].get("add", {}).get("age_s", ()))

    eventually(lambda: points_kept() > 2)
    with looking(browser, server, api="add") as page:
        page.wait_for_function("document.querySelector('[data-chart=rates] .main-svg')")
        assert page.locator("[data-chart=rates] .js-line").count() > 0


def test_a_paused_page_stands_still(browser: Browser, server: Server) -> None:
    """Until it is resumed, also for one who uses the keyboard."""
    ask(server, 20)
    with looking(browser, server, api="add") as page:
        field(page, "pause").focus()
        page.keyboard.press("Enter")
        expect(field(page, "live")).to_have_text("paused")
        expect(field(page, "pause")).to_have_text("Resume")
        before = rows(page, "answers")
        ask(server, 53)
        with looking(browser, server, api="add") as other:
            now = rows(other, "answers")
        # Not "more": only requests of the last 30 s count.
        assert now["answered"] != before["answered"]
        assert rows(page, "answers") == before
        page.keyboard.press("Enter")
        expect(field(page, "live")).to_have_text("live")
        expect(field(page, "answers").locator("span")).not_to_have_text(f"{before['answered']}")


def test_theme_and_range_are_remembered(browser: Browser, server: Server) -> None:
    """The system's theme is the default; arrow keys change the range."""
    ask(server, 20)
    with looking(browser, server, api="add", color_scheme="light") as page:
        background = page.locator("body")
        expect(background).to_have_css("background-color", LIGHT)
        field(page, "theme").select_option("dark")
        expect(background).not_to_have_css("background-color", LIGHT)
        assert page.locator("input[value='300']").is_checked()
        page.locator("input[value='300']").focus()
        page.keyboard.press("ArrowRight")

        page.reload()
        expect(field(page, "live")).to_have_text("live")
        assert page.locator("input[value='900']").is_checked()
        expect(background).not_to_have_css("background-color", LIGHT)
        field(page, "theme").select_option("light")
        page.emulate_media(color_scheme="dark")
        expect(background).to_have_css("background-color", LIGHT)
        field(page, "theme").select_option("system")
        expect(background).not_to_have_css("background-color", LIGHT)


def test_a_fragment_that_is_no_name_shows_the_first_api(browser: Browser, server: Server) -> None:
    """When the page is opened, and later; a fragment that is one still counts."""
    first = HTTP.get(f"{server.base}/status").json()["apis"][0]["name"]
    chosen = "[data-f=apis] [aria-current] b"
    with looking(browser, server, api="%") as page:
        expect(page.locator(chosen)).to_have_text(first)
        for fragment, name in (("remember", "remember"), ("%E0%A4", first)):
            page.evaluate("fragment => { location.hash = fragment; }", fragment)
            expect(page.locator(chosen)).to_have_text(name)


def test_the_page_fits_and_can_be_read(browser: Browser, server: Server) -> None:
    ask(server, 20)  # points of the first requests may be too old to be shown
    with looking(browser, server, api="add") as page:
        expect(points(page, "sizes")).not_to_have_count(0)
        expect(page.locator("[data-chart=latency] .annotation-text")).not_to_have_count(0)
        field(page, "pause").click()  # so that the charts stay as they are
        assert faults_of(page) == []


def test_nothing_moves_for_those_who_want_no_motion(browser: Browser, server: Server) -> None:
    ask(server, 20)
    moves = "getComputedStyle(document.querySelector('.meter i')).transitionDuration"
    with looking(browser, server, api="add", reduced_motion="reduce") as page:
        expect(field(page, "api")).to_be_visible()
        assert page.evaluate(moves) == "0s"
        page.emulate_media(reduced_motion="no-preference")
        assert page.evaluate(moves) != "0s"


def test_an_api_with_a_cost_is_shown_in_units_of_cost(browser: Browser, server: Server) -> None:
    """Its rates, queue and batch sizes are sums of costs, whatever the number of rows."""
    ask(server, 60, "/weigh", {"text": "x" * 40})
    with looking(browser, server, api="weigh") as page:
        expect(points(page, "times")).not_to_have_count(0)
        for name, unit in (("rate", "cost/s"), ("queued", "cost"), ("batch", "cost")):
            expect(field(page, name)).to_have_text(re.compile(rf"^[\d.,]+ {unit}$"))
        expect(field(page, "saturationSub")).to_have_text(
            re.compile(r"^(of (at least )?[\d.,]+ cost/s|too few batches to say)$")
        )
        expect(field(page, "ratesText")).to_have_text(
            re.compile(
                r"^[\d.,]+ units of cost/s arrived; (.* [\d.,]+ units of cost/s|too few batches to know).*\.$"
            )
        )
        for chart, unit in (("rates", "cost/s"), ("queue", "cost")):
            axis = f"document.querySelector('[data-chart={chart}]').layout.yaxis.title.text"
            assert page.evaluate(axis) == unit


def services(*states: str) -> dict[str, Any]:
    named = [{"name": name, "state": state} for name, state in zip("abc", states, strict=False)]
    return {"state": "degraded", "sentence": "", "services": named}


def gpu(name: str, used: float | None) -> dict[str, Any]:
    unknown = dict.fromkeys(("memory_total_bytes", "worker_memory_bytes", "utilization"))
    return {"name": name, "memory_used_bytes": used, **unknown}


COST, ROWS = {"counts": "cost"}, {"counts": "rows"}
CALLS: list[tuple[str, str, list[Any], Any]] = [
    ("format", "number", [0], "0"),
    ("format", "number", [4.92e-80], "0"),
    ("format", "number", [0.00012], "0.00012"),
    ("format", "number", [23.456], "23"),
    ("format", "number", [12345.6], "12,000"),
    ("format", "count", [12345], "12,345"),
    ("format", "count", [2.345], "2.3"),
    ("format", "percent", [0], "0 %"),
    ("format", "percent", [0.0004], "0.04 %"),
    ("format", "percent", [0.0825], "8.3 %"),
    ("format", "percent", [0.9996], "over 99 %"),
    ("format", "percent", [1], "100 %"),
    ("format", "inUnits", [COST, 1], "1 unit of cost"),
    ("format", "inUnits", [COST, 1200], "1,200 units of cost"),
    ("format", "inUnits", [ROWS, 1], "1 row"),
    ("format", "inUnits", [ROWS, 1200], "1,200 rows"),
    ("gateway", "use", [gpu("2", 8e9)], "2: 8 GB"),
    ("gateway", "use", [gpu("MIG-8932f937-d72c-4106", None)], "MIG-8932f937: unknown"),
    # A degraded service counts as ready, as in the list of services and in /status.
    (
        "services", "summary", [services("ready", "degraded", "failing")],
        "All 3 services ready; failing: c; degraded: b.",
    ),
    (
        "services", "summary", [services("ready", "starting", "not_ready")],
        "1 of 3 services ready; not ready: c; starting: b.",
    ),
    ("services", "summary", [services("ready", "ready")], "All 2 services ready."),
]  # fmt: skip
# Labels of the time axis have room; seconds and minutes are not mixed.
TICKS = {
    (60, 640): ["now", "15 s ago", "30 s ago", "45 s ago", "60 s ago"],
    (60, 340): ["now", "30 s ago", "60 s ago"],
    (150, 400): ["now", "1 min ago", "2 min ago"],
    (300, 640): ["now", "1 min ago", "2 min ago", "3 min ago", "4 min ago", "5 min ago"],
    (900, 340): ["now", "5 min ago", "10 min ago", "15 min ago"],
}
ENDS: list[list[float | None]] = [[0.5, 0.5, 0.5, 0.5], [0, 0, 0], [10, 10, 10], [1, 9, 5], [3, None]]


def test_functions_that_need_no_element(browser: Browser, server: Server) -> None:
    with looking(browser, server) as page:
        # Columns that no worker has are hidden.
        expect(field(page, "workers").locator("tr")).to_have_count(1)
        expect(field(page, "gpusHead")).to_be_hidden()

        def call(module: str, function: str, values: list[Any]) -> Any:
            return page.evaluate(
                """async ([module, name, values]) => {
                    const files = performance.getEntriesByType("resource").map((entry) => entry.name);
                    const { [name]: called } = await import(files.find((file) => file.includes(module)));
                    return called(...values);
                }""",
                [module, function, values],
            )

        assert [call(*one[:3]) for one in CALLS] == [one[3] for one in CALLS]
        ticks = {of: call("/plot.js", "timeAxis", list(of))["ticktext"] for of in TICKS}
        ends = []
        for case in ENDS:
            lines = [{"y": y, "text": str(at)} for at, y in enumerate(case)]
            ends.append(call("/plot.js", "endLabels", [lines, [0, 10], 240]))
    assert ticks == TICKS
    for case, labels in zip(ENDS, ends, strict=True):
        assert_labels_do_not_overlap(case, labels)
    # Where there is room, at the ends of the lines.
    assert sorted((label["text"], label["y"]) for label in ends[3]) == [("0", 0.1), ("1", 0.9), ("2", 0.5)]


def assert_labels_do_not_overlap(case: list[float | None], labels: list[dict[str, Any]]) -> None:
    """Each is inside the plot; a line without an end has none."""
    heights = sorted(label["y"] for label in labels)
    assert len(labels) == len([y for y in case if y is not None])
    assert heights[0] >= -1e-9
    assert heights[-1] <= 1 + 1e-9
    assert all(high - low >= 15 / 200 - 1e-9 for low, high in itertools.pairwise(heights))
