"""The files of pages: compression, caching, safety headers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from uncork_gateway.pages.assets import Assets, html_page, package_folder

SCRIPT = "console.log('grüße');\n" * 100


def files(folder: Path) -> Assets:
    (folder / "a.js").write_text(SCRIPT)
    return Assets("/page", {"script.js": folder / "a.js"})


def client(assets: Assets) -> httpx.AsyncClient:
    app = Starlette(routes=[assets.route()])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")


async def test_a_file_comes_compressed_to_who_can_read_that(tmp_path: Path) -> None:
    """Other clients get plain text; caches distinguish the two."""
    async with client(files(tmp_path)) as http:
        packed = await http.get("/page/script.js", headers={"accept-encoding": "br, gzip"})
        plain = await http.get("/page/script.js", headers={"accept-encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(SCRIPT) / 10
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text == SCRIPT
    for reply in (packed, plain):
        assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
        assert reply.headers["vary"] == "accept-encoding"
        assert reply.headers["x-content-type-options"] == "nosniff"


async def test_a_browser_keeps_a_file_until_it_changes(tmp_path: Path) -> None:
    """URLs with a version are immutable; others are revalidated with the ETag."""
    assets = files(tmp_path)
    async with client(assets) as http:
        url = await assets.url("script.js")
        kept = await http.get(f"/{url}")
        again = await http.get("/page/script.js", headers={"if-none-match": kept.headers["etag"]})
        other = await http.get("/page/script.js?v=older", headers={"if-none-match": '"older"'})

    assert url.startswith("page/script.js?v=")
    assert "immutable" in kept.headers["cache-control"]
    assert (again.status_code, again.content) == (304, b"")
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")
    (tmp_path / "a.js").write_text("other")
    assert await Assets("/page", {"script.js": tmp_path / "a.js"}).url("script.js") != url


async def test_a_file_is_read_once(tmp_path: Path) -> None:
    assets = files(tmp_path)
    async with client(assets) as http:
        before = await http.get("/page/script.js")
        (tmp_path / "a.js").unlink()
        after = await http.get("/page/script.js")

    assert after.content == before.content


async def test_a_request_for_a_file_costs_no_work(tmp_path: Path) -> None:
    """It needs no API key. A client may read nothing of the response, or get only its head."""
    route = files(tmp_path).route()
    scope = {"type": "http", "path_params": {"name": "script.js"}, "query_string": b"", "headers": []}
    replies = [await route.endpoint(Request(scope)) for _ in range(2)]

    assert replies[0].body.decode() == SCRIPT
    assert replies[0].body is replies[1].body


@pytest.mark.parametrize("path", ["/page/a.js", "/page/..%2Fa.js", "/page/%2E%2E/a.js", "/page/"])
async def test_only_the_files_that_a_page_needs_are_there(tmp_path: Path, path: str) -> None:
    """Other files in the folder are not served."""
    async with client(files(tmp_path)) as http:
        assert (await http.get(path)).status_code == 404


def test_the_folder_of_a_package_is_found_without_importing_it() -> None:
    folder = package_folder("swagger_ui_bundle")

    assert folder is not None
    assert (folder / "vendor").is_dir()
    assert package_folder("no_such_package") is None


def test_a_page_may_load_nothing_from_elsewhere() -> None:
    policy = html_page("<p>").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    assert "http" not in policy


async def test_the_version_of_a_file_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Gateways behind one address serve the same file."""
    first, second = files(tmp_path), files(tmp_path)
    async with client(first) as one, client(second) as other:
        replies = [await http.get("/page/script.js") for http in (one, other)]

    assert replies[0].headers["etag"] == replies[1].headers["etag"]
