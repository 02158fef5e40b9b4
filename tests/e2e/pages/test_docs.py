"""The page at /docs, in a browser: whatever it offers to try can be tried."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Response, TimeoutError, expect

from tests.e2e.pages.browser import HANG_MS, LIGHT, browser, needs_chromium
from tests.e2e.server import HTTP, SERVICES, serving

pytestmark = pytest.mark.slow

__all__ = ["browser"]

KEY = "a-key-for-the-tests"
# After this time, a form is filled in again, as the page may have built it again.
LOST_MS = 2000
TRIES = int(HANG_MS / LOST_MS)
INVERTED = "invert(0.9) hue-rotate(180deg)"


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """The URL of a service with every kind of input."""
    with serving(f"{SERVICES / 'adapters.py'}:Adapters") as server:
        yield server.base


class Docs:
    """The page of a server, and what a browser had to say of it."""

    def __init__(self, browser: Browser, base: str) -> None:
        self.page: Page = browser.new_page()
        self.page.set_default_timeout(HANG_MS)
        self.complaints: list[str] = []
        self._base = base
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._look_at)

    def open(self) -> None:
        self.page.goto(f"{self._base}/docs")

    def operations(self) -> list[Locator]:
        self.page.locator(".opblock").first.wait_for()
        return self.page.locator(".opblock").all()

    def execute(self, operation: Locator, file: bytes) -> Response:
        """Send the form, with that file in each file field; return the answer, which the page must show."""
        for _ in range(TRIES):
            for chooser in operation.locator("input[type=file]").all():
                chooser.set_input_files({"name": "a", "mimeType": "image/png", "buffer": file})
            try:
                with self.page.expect_response(
                    lambda reply: "/docs/" not in reply.url, timeout=LOST_MS
                ) as got:
                    operation.get_by_role("button", name="Execute").click()
                reply = got.value
                break
            except TimeoutError:
                continue  # the page has built the form again since, without the file
        else:
            raise AssertionError(f"the page sent nothing, {TRIES} times")
        shown = operation.locator(".live-responses-table .response td.response-col_status")
        expect(shown).to_have_text(str(reply.status))
        return reply

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith((self._base, "blob:", "data:")):
            self.complaints.append(f"asked for {request.url}")


def press(button: Locator) -> None:
    """Click without the wait of a usual click until nothing moves: the page builds much at a time."""
    button.dispatch_event("click")


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (80, 60), "red").save(file, "PNG")
    return file.getvalue()


def npy(shape: tuple[int, ...]) -> bytes:
    """An array of one row."""
    file = io.BytesIO()
    np.save(file, np.ones((1, *shape), dtype="uint8"))
    return file.getvalue()


NPY_SHAPES = {"/array": (2, 3), "/halves": (3,)}
# Of one that is a file, one that is text and one that is a form.
WITH_EACH_TYPE = ("/array", "/table", "/image")


def try_out(docs: Docs, operation: Locator) -> tuple[str, dict[str, int]]:
    """Execute an operation with a body of the first type that it takes, or of each; the statuses by type."""
    press(operation.locator(".opblock-summary-control"))
    operation.get_by_role("button", name="Execute").wait_for()
    path = operation.locator(".opblock-summary-path").get_attribute("data-path") or ""
    choice = operation.locator(".opblock-section-request-body select.content-type").first
    if operation.locator(".opblock-summary-method").inner_text() == "POST":
        choice.wait_for()  # the form is built before the body's schema is resolved, and again after
    types = choice.locator("option").all_text_contents() if choice.count() else ["none"]
    statuses = {}
    for media_type in types if path in WITH_EACH_TYPE else types[:1]:
        if len(types) > 1:
            choice.select_option(media_type)
        content = npy(NPY_SHAPES[path]) if media_type == "application/x-npy" else png()
        statuses[media_type] = docs.execute(operation, content).status
    press(operation.locator(".opblock-summary-control"))
    return path, statuses


@needs_chromium
def test_everything_can_be_tried_out(browser: Browser, base: str) -> None:
    """Each operation as it stands there; some with each type of body. No other host is asked.

    An open one fits on the screen of a phone.
    """
    docs = Docs(browser, base)
    docs.open()
    statuses = [try_out(docs, operation) for operation in docs.operations()]
    press(docs.page.locator(".opblock-summary-control").first)
    docs.page.get_by_role("button", name="Execute").wait_for()
    docs.page.set_viewport_size({"width": 390, "height": 844})

    assert docs.page.evaluate("document.documentElement.scrollWidth") == 390
    assert statuses
    assert [(path, found) for path, found in statuses if set(found.values()) != {200}] == []
    assert docs.complaints == []
    docs.page.close()


def test_every_example_of_the_document_is_answered(base: str) -> None:
    """Those too that the page does not offer first: of other models, of tables with two rows."""
    document = HTTP.get(f"{base}/openapi.json").json()
    bodies = [
        (path, media_type, example, said["value"])
        for path, methods in document["paths"].items()
        if "post" in methods
        for media_type, content in methods["post"]["requestBody"]["content"].items()
        for example, said in content.get("examples", {}).items()
    ]

    assert len(bodies) > 3
    assert [one for one in bodies if send(base, *one) != 200] == []


def send(base: str, path: str, media_type: str, example: str, body: Any) -> int:
    """Send an example; if it is that of a model, to this one. The status of the answer."""
    content = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    url = base + path.replace("{model}", example)
    return HTTP.post(url, content=content, headers={"content-type": media_type}).status_code


@needs_chromium
def test_behind_api_keys_the_page_asks_for_one(browser: Browser, tmp_path: Path) -> None:
    """It is used for the document and for calls of the page; a wrong one is reported."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    probe = f"{SERVICES / 'models.py'}:Models"
    with serving(probe, "--api-key-file", str(keys), "--admin-port", "0") as server:
        [url] = re.findall(r"POST (http://[^/]+)/predict ", server.output)
        docs = Docs(browser, url)
        docs.open()
        for key in ("not-a-key-of-the-server", KEY):
            docs.page.get_by_label("API key").fill(key)
            docs.page.get_by_role("button", name="Show").click()
            if key != KEY:
                expect(docs.page.get_by_role("status")).to_have_text("Unknown API key.")
        statuses = try_out(docs, docs.operations()[0])

    assert statuses == ("/predict", {"application/json": 200})
    # The browser itself says when an answer is 401: without a key, and with the wrong one.
    assert len(docs.complaints) == 2
    assert all("401" in complaint for complaint in docs.complaints)
    docs.page.close()


@needs_chromium
def test_the_theme_is_chosen_once_for_all_pages(browser: Browser, base: str) -> None:
    """Without a choice, pages follow the system. A dark Swagger UI is its light one, inverted."""
    page = browser.new_page(color_scheme="dark")
    page.set_default_timeout(HANG_MS)
    page.goto(f"{base}/docs")
    theme = page.get_by_label("Theme")
    expect(theme).to_have_value("system")
    expect(page.locator("html")).to_have_css("filter", INVERTED)
    theme.select_option("Light")
    expect(page.locator("html")).to_have_css("filter", "none")
    theme.select_option("Dark")
    expect(page.locator("html")).to_have_css("filter", INVERTED)
    theme.select_option("Light")

    page.get_by_role("link", name="Home").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Adapters")
    expect(page.get_by_label("Theme")).to_have_value("light")
    expect(page.locator("body")).to_have_css("background-color", LIGHT)
    page.close()
