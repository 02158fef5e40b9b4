"""A headless browser, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.loops import HANG_S

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")

# Pages must do without a network; what a browser asks of its maker on its own would only fail.
_ALONE = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")

HANG_MS = 1000 * HANG_S
LIGHT = "rgb(245, 246, 248)"
"""The background of pages in the light theme."""
expect.set_options(timeout=HANG_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; tests that use it are marked ``needs_chromium``."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=_ALONE, timeout=HANG_MS)
        yield chromium
        chromium.close()
