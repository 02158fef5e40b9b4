"""Photograph the dashboard: for the README with 256 clients; for docs/guides/dashboard.md idle and loaded.

Needs Debian's chromium. Run it from anywhere:

    python docs/pictures/dashboard.py
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from uncork_loadtests.servers import serve

FOLDER = Path(__file__).parent
EXAMPLE = FOLDER.parent.parent / "examples" / "digits"
SERVICE = f"{EXAMPLE / 'service.py'}:Digits"
COMMAND = [sys.executable, "-m", "uncork", "serve", SERVICE, "--workers", "2", "--host", "127.0.0.1"]
CLIENTS = 8
LOADED_MS = 120_000
# Of the README: the clients of a load test, and the part of the page.
MANY_CLIENTS, MANY_MS = 256, 90_000
TOP = {"x": 0, "y": 0, "width": 1440, "height": 880}
REDRAWN_MS = 2_500
ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update")


def send(url: str, ended: threading.Event) -> None:
    """Send images with pauses until the event."""
    with httpx.Client(trust_env=False) as client:
        while not ended.wait(random.expovariate(25)):
            client.post(url, json=[random.randrange(17) for _ in range(64)])


def take(page: Page, name: str, scheme: str = "light", part: Any = None) -> None:
    """Write a picture of the page or a part; with few colors, a palette makes the file a third as large."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.wait_for_timeout(REDRAWN_MS)
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=part))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


def main() -> None:
    """Take the four pictures, which needs four minutes."""
    ended = threading.Event()
    subprocess.run([sys.executable, str(EXAMPLE / "train.py")], check=True)
    with serve("uncork", command=COMMAND) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(server.url("/dashboard"))
        take(page, "dashboard-idle")
        clients = [
            threading.Thread(target=send, args=(server.url("/predict"), ended)) for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        page.wait_for_timeout(LOADED_MS)
        take(page, "dashboard")
        take(page, "dashboard-dark", "dark")
        ended.set()
        for client in clients:
            client.join()
        page.emulate_media(color_scheme="light")
        options = ["--clients", str(MANY_CLIENTS), "--shape", "64", "--range", "0,16"]
        seconds = str((MANY_MS + 2 * REDRAWN_MS) // 1000)
        load = [
            sys.executable,
            "-m",
            "uncork",
            "loadtest",
            server.url("/predict"),
            *options,
            "--seconds",
            seconds,
        ]
        with subprocess.Popen(load) as loading:
            page.wait_for_timeout(MANY_MS)
            take(page, "dashboard-load", part=TOP)
            loading.wait()
        browser.close()


if __name__ == "__main__":
    main()
