"""The dashboard in a browser, with a real gateway behind it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from playwright.sync_api import Browser, Page, expect

from tests.e2e.clients.test_protocols import MODELS, ROWS
from tests.e2e.lifecycle.test_services import write
from tests.e2e.pages.browser import HANG_MS, browser, needs_chromium
from tests.e2e.pages.test_home import run_curl
from tests.e2e.server import HTTP, PROBE, SERVICES, Server, eventually, proxying, serving
from tests.e2e.workers.nvml import FakeGpus
from tests.loops import HANG_S

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, needs_chromium]

PHONE = {"width": 390, "height": 844}
TABLET = {"width": 1024, "height": 768}
DESK = {"width": 1440, "height": 900}
CHARTS = ("latency", "sizes", "rates", "queue", "times")
"""Those that are drawn if nothing fails."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A gateway that has answered requests, in batches of several sizes."""
    with serving(PROBE) as running:
        ask(running, 200)
        yield running


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


def call(page: Page, module: str, function: str, calls: list[list[Any]]) -> Any:
    """Call a function of one of the page's modules with several lists of arguments."""
    return page.evaluate(
        """async ([module, name, calls]) => {
            const files = performance.getEntriesByType("resource").map((entry) => entry.name);
            const { [name]: called } = await import(files.find((file) => file.includes(module)));
            return calls.map((values) => called(...values));
        }""",
        [module, function, calls],
    )


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


def test_refusals_have_reasons_and_are_no_failures(browser: Browser) -> None:
    """A request whose own deadline passes gets 504; no row has that status beside the refusal."""
    with serving(PROBE) as server, ThreadPoolExecutor(1) as pool:
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


def test_padding_has_a_chart_where_there_is_any(browser: Browser) -> None:
    """The other charts make room for it, and take it again."""
    fit = """[...document.querySelectorAll("[data-chart]")].every((chart) => {
        const drawn = chart.querySelector(".main-svg");
        return !drawn || Math.abs(drawn.clientWidth - chart.clientWidth) <= 1;
    })"""
    width = "document.querySelector('[data-chart=rates]').clientWidth"
    with serving(f"{SERVICES / 'staged.py'}:Staged") as server:
        with httpx.Client(base_url=server.base, timeout=HANG_S) as client, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda length: client.post("/padded", json="x" * length), [10, 100] * 60))
        ask(server, 20, "/capped", 1)
        with looking(browser, server, api="padded") as page:
            expect(field(page, "paddingCard")).to_be_visible()
            expect(page.locator("[data-chart=padding] .main-svg").first).to_be_visible()
            [api] = [one for one in HTTP.get(f"{server.base}/status").json()["apis"] if one["padding"]]
            shown = call(page, "format", "percent", [[api["padding"]["share"]]])
            expect(field(page, "paddingText")).to_have_text(
                f"{shown[0]} of the work of the last batches was padding."
            )
            page.wait_for_function(fit)
            narrow = page.evaluate(width)

            field(page, "apis").get_by_text("capped").click()
            expect(field(page, "paddingCard")).to_be_hidden()
            page.wait_for_function(fit)
            assert page.evaluate(width) > narrow


def test_workers_with_gpus_have_a_column_for_them(
    browser: Browser, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live; without any GPU it is hidden, and of what is unknown nothing is said."""
    with looking(browser, server) as page:
        expect(field(page, "workers").locator("tr")).to_have_count(1)
        expect(field(page, "gpusHead")).to_be_hidden()
        gpu = {
            "memory_used_bytes": 8e9,
            "memory_total_bytes": None,
            "worker_memory_bytes": None,
            "utilization": None,
        }
        unknown = {**gpu, "memory_used_bytes": None}
        names = ["2", "MIG-8932f937-d72c-4106"]
        said = call(
            page,
            "gateway",
            "use",
            [[{**one, "name": name}] for one, name in zip((gpu, unknown), names, strict=True)],
        )
        assert said == ["2: 8 GB", "MIG-8932f937: unknown"]
    gpus = FakeGpus(tmp_path, monkeypatch)
    with serving(PROBE) as with_gpus, looking(browser, with_gpus) as page:
        lines = field(page, "workers").locator("td.gpus > div")
        expect(lines).to_have_text(
            ["0: 8 GB of 80 GB, 5 GB by this worker, 87 % busy", "1: 0 B of 80 GB, 0 % busy"]
        )
        expect(field(page, "gpusHead")).to_be_visible()
        gpus.set(percent=12)
        expect(lines.first).to_contain_text("12 % busy")


def test_the_command_of_an_idle_api_works(browser: Browser) -> None:
    """As it stands on the page."""
    with serving(f"{SERVICES / 'models.py'}:Models") as server, looking(browser, server) as page:
        assert run_curl(field(page, "emptyCode").inner_text()).status_code == 200
        expect(field(page, "empty")).to_be_hidden()
        expect(field(page, "answeredSub")).to_contain_text("1 request in ")


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
        # Not "more": the counts are those of the last 30 s.
        assert now["answered"] != before["answered"]
        assert rows(page, "answers") == before
        page.keyboard.press("Enter")
        expect(field(page, "live")).to_have_text("live")
        expect(field(page, "answers").locator("span")).not_to_have_text(f"{before['answered']}")


def test_theme_and_range_are_remembered(browser: Browser, server: Server) -> None:
    """The system's theme is the default; arrow keys change the range."""
    ask(server, 20)
    with looking(browser, server, api="add", color_scheme="light") as page:
        assert luminance(page, "body", "backgroundColor") > 0.8
        field(page, "theme").select_option("dark")
        assert luminance(page, "body", "backgroundColor") < 0.1
        assert page.locator("input[value='300']").is_checked()
        page.locator("input[value='300']").focus()
        page.keyboard.press("ArrowRight")

        page.reload()
        expect(field(page, "live")).to_have_text("live")
        assert page.locator("input[value='900']").is_checked()
        assert luminance(page, "body", "backgroundColor") < 0.1
        field(page, "theme").select_option("light")
        page.emulate_media(color_scheme="dark")
        assert luminance(page, "body", "backgroundColor") > 0.8
        field(page, "theme").select_option("system")
        assert luminance(page, "body", "backgroundColor") < 0.1


def test_a_fragment_that_is_no_name_shows_the_first_api(browser: Browser, server: Server) -> None:
    """When the page is opened, and later; a fragment that is one still counts."""
    first = HTTP.get(f"{server.base}/status").json()["apis"][0]["name"]
    chosen = "[data-f=apis] [aria-current] b"
    with looking(browser, server, api="%") as page:
        expect(page.locator(chosen)).to_have_text(first)
        for fragment, name in (("remember", "remember"), ("%E0%A4", first)):
            page.evaluate("fragment => { location.hash = fragment; }", fragment)
            expect(page.locator(chosen)).to_have_text(name)


@pytest.mark.parametrize(
    ("scheme", "viewport"),
    [("dark", PHONE), ("dark", DESK), ("light", TABLET)],
    ids=["phone", "desk", "tablet"],
)
def test_the_page_fits_and_can_be_read(
    browser: Browser, server: Server, scheme: str, viewport: dict[str, int]
) -> None:
    """Nothing is wider than the screen, and all text has the contrast that WCAG asks for."""
    ask(server, 20)  # points of the first requests may be too old to be shown
    with looking(browser, server, api="add", viewport=viewport, color_scheme=scheme) as page:
        expect(points(page, "sizes")).not_to_have_count(0)
        field(page, "pause").click()  # so that the charts stay as they are
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert (luminance(page, "body", "backgroundColor") < 0.1) == (scheme == "dark")
        for element in (
            "body",
            ".sub",
            ".chips li",
            "[data-f=state]",
            "figcaption p",
            ".ranges :checked + span",
        ):
            assert contrast(page, element) > 4.5, element
        for text in (".xtick text", ".annotation-text"):
            shown = page.locator(f"[data-chart=latency] {text}")
            expect(shown).not_to_have_count(0)
            for at in range(shown.count()):
                assert contrast(page, f"[data-chart=latency] {text}", "fill", at=at) > 4.5, text


def test_nothing_moves_for_those_who_want_no_motion(browser: Browser, server: Server) -> None:
    ask(server, 20)
    moves = "getComputedStyle(document.querySelector('.meter i')).transitionDuration"
    with looking(browser, server, api="add", reduced_motion="reduce") as page:
        expect(field(page, "api")).to_be_visible()
        assert page.evaluate(moves) == "0s"
        page.emulate_media(reduced_motion="no-preference")
        assert page.evaluate(moves) != "0s"


def test_numbers_as_people_read_them(browser: Browser, server: Server) -> None:
    with looking(browser, server) as page:
        shown = call(page, "format", "number", [[value] for value in (0, 4.92e-80, 0.00012, 23.456, 12345.6)])
        exact = call(page, "format", "count", [[12345], [2.345]])
        shares = call(page, "format", "percent", [[share] for share in (0, 0.0004, 0.0825, 0.9996, 1)])
    assert shown == ["0", "0", "0.00012", "23", "12,000"]
    assert exact == ["12,345", "2.3"]
    assert shares == ["0 %", "0.04 %", "8.3 %", "over 99 %", "100 %"]


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
        apis = [{"counts": "cost"}, {"counts": "rows"}]
        amounts = call(page, "format", "inUnits", [[api, value] for api in apis for value in (1, 1200)])
    assert amounts == ["1 unit of cost", "1,200 units of cost", "1 row", "1,200 rows"]


def test_a_degraded_service_counts_as_ready(browser: Browser, server: Server) -> None:
    """The summary agrees with the list of services and with /status."""
    states = (["ready", "degraded", "failing"], ["ready", "starting", "not_ready"], ["ready", "ready"])
    cases = [
        [
            {
                "state": "degraded",
                "sentence": "",
                "services": [
                    {"name": name, "state": state} for name, state in zip("abc", of_one, strict=False)
                ],
            }
        ]
        for of_one in states
    ]
    with looking(browser, server) as page:
        assert call(page, "services", "summary", cases) == [
            "All 3 services ready; failing: c; degraded: b.",
            "1 of 3 services ready; not ready: c; starting: b.",
            "All 2 services ready.",
        ]


def test_batches_of_the_warm_up_do_not_stretch_the_chart(browser: Browser) -> None:
    """It ran batches of up to a thousand rows, and the traffic makes batches of one."""
    with serving(f"{SERVICES / 'adapters.py'}:Adapters") as warm:
        ask(warm, 1, "/value")
        with looking(browser, warm, api="value") as page:
            expect(points(page, "times")).not_to_have_count(0)
            expect(field(page, "timesText")).to_contain_text("sizes from 1 to 1,000")
            axis = page.evaluate("document.querySelector('[data-chart=times]').layout.xaxis.range")
    assert axis[1] < 10


def test_labels_at_the_ends_of_lines_do_not_overlap(browser: Browser, server: Server) -> None:
    """Each is as near to its line as the others allow, in the same order, inside the plot."""
    step = 15 / 200
    cases: list[list[float | None]] = [[0.5, 0.5, 0.5, 0.5], [0, 0, 0], [10, 10, 10], [1, 9, 5], [3, None]]
    with looking(browser, server) as page:
        found = call(
            page,
            "/plot.js",
            "endLabels",
            [[[{"y": y, "text": str(at)} for at, y in enumerate(case)], [0, 10], 240] for case in cases],
        )
    for case, labels in zip(cases, found, strict=True):
        heights = sorted(label["y"] for label in labels)
        assert len(labels) == len([y for y in case if y is not None])
        assert heights[0] >= -1e-9
        assert heights[-1] <= 1 + 1e-9
        assert all(high - low >= step - 1e-9 for low, high in itertools.pairwise(heights))
    # Where there is room, at the ends of the lines.
    assert sorted((label["text"], label["y"]) for label in found[3]) == [("0", 0.1), ("1", 0.9), ("2", 0.5)]


def test_labels_of_the_time_axis_have_room(browser: Browser, server: Server) -> None:
    """Seconds and minutes are not mixed."""
    with looking(browser, server) as page:
        cases = [[60, 640], [60, 340], [150, 400], [300, 640], [900, 340]]
        found = call(page, "/plot.js", "timeAxis", cases)
    assert [axis["ticktext"] for axis in found] == [
        ["now", "15 s ago", "30 s ago", "45 s ago", "60 s ago"],
        ["now", "30 s ago", "60 s ago"],
        ["now", "1 min ago", "2 min ago"],
        ["now", "1 min ago", "2 min ago", "3 min ago", "4 min ago", "5 min ago"],
        ["now", "5 min ago", "10 min ago", "15 min ago"],
    ]


def luminance(page: Page, element: str, kind: str, *, at: int = 0) -> float:
    """How bright a color of an element, or of what is below it, is: from 0 to 1 (WCAG 2)."""
    color: list[float] = page.evaluate(
        """([element, kind, index]) => {
            let at = document.querySelectorAll(element)[index];
            let color;
            do {
                color = getComputedStyle(at)[kind].match(/[\\d.]+/g).map(Number);
                at = at.parentElement;
            } while (at && color[3] === 0);
            return color.slice(0, 3);
        }""",
        [element, kind, at],
    )
    linear = [
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in color
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(page: Page, element: str, kind: str = "color", *, at: int = 0) -> float:
    """Of the text of an element (WCAG 2)."""
    pair = [luminance(page, element, each, at=at) for each in (kind, "backgroundColor")]
    return (max(pair) + 0.05) / (min(pair) + 0.05)


def test_answers_over_grpc_are_counted_apart(browser: Browser) -> None:
    with serving(MODELS, "--grpc-port", "0") as server, triton.InferenceServerClient(server.grpc) as client:
        ask(server, 2, "/predict", ROWS)
        with looking(browser, server, api="predict") as page:
            expect(field(page, "answers")).to_contain_text("Answered")
            expect(field(page, "protocols")).to_be_hidden()

            rows_of_one = triton.InferInput("rows", [1, 3], "FP32")
            rows_of_one.set_data_from_numpy(np.array(ROWS[:1], np.float32))
            client.infer("models", [rows_of_one])
            expect(field(page, "protocols")).to_have_text("2 over HTTP, 1 over gRPC.")


def test_a_proxy_has_the_page_which_outlives_it(browser: Browser, server: Server) -> None:
    """Models appear with their first answer; a proxy that goes is missed, its successor known as another."""
    with browser.new_context() as context:
        context.set_default_timeout(HANG_MS)
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
            expect(field(page, "live")).to_have_text("live")
            expect(field(page, "lost")).to_be_hidden()
            expect(field(page, "empty")).to_be_visible()
            expect(field(page, "api")).to_be_hidden()


def test_behind_api_keys_the_page_says_where_to_look(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    with serving(PROBE, "--api-key-file", str(keys)) as server, browser.new_context() as context:
        context.set_default_timeout(HANG_MS)
        page = context.new_page()
        page.goto(f"{server.base}/dashboard")
        expect(field(page, "lost")).to_have_text(
            "This gateway requires an API key, which a browser cannot send. Start it with --admin-port, and "
            "open the dashboard on that port. Trying again."
        )


def test_several_services_are_chosen_from_a_list(browser: Browser, tmp_path: Path) -> None:
    """With their states; one whose workers are not ready says why."""
    broken = "raise OSError('no weights')"
    targets = [
        write(tmp_path, "Digits"),
        f"other={write(tmp_path, 'Wine')}",
        f"broken={write(tmp_path, 'Late', setup=broken)}",
    ]
    with serving(*targets, "--no-own-routes", wait=False) as server:
        server.wait_for_address()
        ready = [f"{server.base}/readyz/{name}" for name in ("digits", "other")]
        eventually(lambda: all(HTTP.get(path).is_success for path in ready))
        answered = "li[data-key=answered] span"
        with looking(browser, server, api="other/predict") as page:
            # Now, because the page counts the last 30 s, which a busy machine may take to open it.
            ask(server, 20, "/other/predict", 1)
            expect(field(page, "answers").locator(answered)).to_have_text("20")
            services = field(page, "services").locator("section")
            expect(services).to_have_count(3)
            expect(services.nth(1)).to_contain_text("other")
            expect(services.nth(2)).to_contain_text("no weights")
            services.nth(0).get_by_role("link", name="predict").click()
            expect(page.locator("[aria-current]")).to_have_count(1)
            ask(server, 30, "/digits/predict", 1)
            expect(field(page, "answers").locator(answered)).to_have_text("30")
            assert page.url.endswith("#digits/predict")
            expect(field(page, "workers").locator("tr.group")).to_have_count(3)
