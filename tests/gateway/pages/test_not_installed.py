"""The pages of ``uncork[pages]`` without the packages of that extra."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import pytest

from tests.gateway.gateway_stage import gateway, problem
from uncork_workers.extras import install_command

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
INSTALL = install_command("pages")


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


async def test_pages_without_their_packages_say_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other routes work, including the dashboard's events."""
    hide(monkeypatch, "plotly", "swagger_ui_bundle")

    async with gateway(tmp_path) as stage:
        await stage.worker()
        for path in ("/dashboard", "/docs"):
            page = await stage.http.get(path, headers=BROWSER)
            other = await stage.http.get(path)

            assert page.status_code == other.status_code == 501
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert "content-security-policy" in page.headers
            assert escape(INSTALL, quote=False) in page.text
            assert INSTALL in problem(other, 501)
        assert (await stage.http.get("/docs/docs.js")).status_code == 404
        for path in ("/openapi.json", "/status", "/metrics", "/readyz"):
            assert (await stage.http.get(path)).status_code == 200
        assert (await stage.http.head("/dashboard/events")).status_code == 200


@pytest.mark.parametrize(
    ("packages", "names"),
    [(("plotly", "swagger_ui_bundle"), "Docs, Dashboard"), (("plotly",), "Dashboard"), ((), "")],
)
async def test_the_page_at_the_root_says_which_pages_are_not_installed(
    packages: tuple[str, ...], names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, *packages)

    async with gateway(tmp_path) as stage:
        page = (await stage.http.get("/", headers=BROWSER)).text

    assert (f"Not installed: {names}." in page) is bool(names)
    assert (escape(INSTALL, quote=False) in page) is bool(names)
