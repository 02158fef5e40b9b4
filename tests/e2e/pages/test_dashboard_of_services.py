"""The dashboard of services that differ: in padding, GPUs, protocols, number; and of a proxy."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import tritonclient.grpc as triton
from playwright.sync_api import Browser, expect

from tests.e2e.clients.test_grpc import floats
from tests.e2e.clients.test_protocols import MODELS, ROWS
from tests.e2e.lifecycle.test_services import write
from tests.e2e.pages.browser import HANG_MS, browser, needs_chromium
from tests.e2e.pages.dashboard import ask, field, looking, points
from tests.e2e.pages.test_home import run_curl
from tests.e2e.server import HTTP, PROBE, SERVICES, eventually, proxying, serving
from tests.e2e.workers.nvml import FakeGpus
from tests.loops import HANG_S

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, needs_chromium]


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
            expect(field(page, "paddingText")).to_have_text(
                re.compile(r"^[\d.]+ % of the work of the last batches was padding\.$")
            )
            page.wait_for_function(fit)
            narrow = page.evaluate(width)

            field(page, "apis").get_by_text("capped").click()
            expect(field(page, "paddingCard")).to_be_hidden()
            page.wait_for_function(fit)
            assert page.evaluate(width) > narrow


def test_workers_with_gpus_have_a_column_for_them(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live."""
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
    """It is run as the page shows it. Responses over gRPC are counted separately."""
    with serving(MODELS, "--grpc-port", "0") as server, looking(browser, server) as page:
        assert run_curl(field(page, "emptyCode").inner_text()).status_code == 200
        expect(field(page, "empty")).to_be_hidden()
        expect(field(page, "answeredSub")).to_contain_text("1 request in ")
        expect(field(page, "answers")).to_contain_text("Answered")
        expect(field(page, "protocols")).to_be_hidden()

        with triton.InferenceServerClient(server.grpc) as client:
            client.infer("models", [floats(ROWS[:1])])
        expect(field(page, "protocols")).to_have_text("1 over HTTP, 1 over gRPC.")


def test_batches_of_the_warm_up_do_not_stretch_the_chart(browser: Browser) -> None:
    """It ran batches of up to a thousand rows, and the traffic makes batches of one."""
    with serving(f"{SERVICES / 'adapters.py'}:Adapters") as warm:
        ask(warm, 1, "/value")
        with looking(browser, warm, api="value") as page:
            expect(points(page, "times")).not_to_have_count(0)
            expect(field(page, "timesText")).to_contain_text("sizes from 1 to 1,000")
            axis = page.evaluate("document.querySelector('[data-chart=times]').layout.xaxis.range")
    assert axis[1] < 10


def test_a_proxy_has_the_page_which_outlives_it(browser: Browser) -> None:
    """Models appear with their first answer; a proxy that goes is missed, its successor known as another."""
    with serving(PROBE) as server, browser.new_context() as context:
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

        with proxying(server.base, "--port", proxy.port):
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
