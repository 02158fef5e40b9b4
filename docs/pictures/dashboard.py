"""Photograph the dashboard: idle for docs/guides/dashboard.md, with 256 clients for it and the README.

Needs Debian's chromium. Run it from anywhere, on an otherwise idle machine:

    python docs/pictures/dashboard.py         # all pictures
    python docs/pictures/dashboard.py load    # only those with clients
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from uncork_loadtests.servers import serve

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
UNCORK = [sys.executable, "-m", "uncork"]
OPTIONS = ["--workers", "2", "--host", "127.0.0.1"]
EXAMPLE = ROOT / "examples" / "digits"
DIGITS = [*UNCORK, "serve", f"{EXAMPLE / 'service.py'}:Digits", *OPTIONS]
# A model that sleeps, because two cores have no room for a model, the gateway and 256 clients.
# It stands for one on a GPU.
SLEEP = [
    *("env", "PEER_INTERCEPT_MS=60", "PEER_SLOPE_MS=0.3", *UNCORK),
    *("serve", f"{ROOT / 'benchmarks' / 'services' / 'sleep.py'}:Sleep", *OPTIONS),
]
MANY_MS = 120_000
MANY = [*("--clients", "256", "--think-ms", "50", "--shape", "4"), "--seconds", str(MANY_MS // 1000 + 10)]
TOP = {"x": 0, "y": 0, "width": 1440, "height": 880}
REDRAWN_MS = 2_500
ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update")


def take(page: Page, name: str, part: Any = None) -> None:
    """Write a picture of the page or a part; with few colors, a palette makes the file a third as large."""
    page.wait_for_timeout(REDRAWN_MS)
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=part))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


def open_page(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(url)
    return page


def idle(browser: Browser) -> None:
    """Take the picture of a service without requests."""
    subprocess.run([sys.executable, str(EXAMPLE / "train.py")], check=True)
    with serve("uncork", command=DIGITS) as server:
        take(open_page(browser, server.url("/dashboard")), "dashboard-idle")


def load(browser: Browser) -> None:
    """Take the pictures under a load test: the whole page, and its top for the README."""
    with serve("uncork", command=SLEEP) as server:
        page = open_page(browser, server.url("/dashboard"))
        with subprocess.Popen([*UNCORK, "loadtest", server.url("/predict"), *MANY]) as loading:
            page.wait_for_timeout(MANY_MS)
            take(page, "dashboard")
            take(page, "dashboard-load", part=TOP)
            loading.wait()


def main() -> None:
    """Take the pictures, in two minutes."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        if sys.argv[1:] != ["load"]:
            idle(browser)
        load(browser)
        browser.close()


if __name__ == "__main__":
    main()
