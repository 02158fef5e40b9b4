"""A server imports neither the load tests, nor the Ray launcher, nor libraries of those and of pages."""

from __future__ import annotations

import re

import pytest

from tests.e2e.server import HTTP, PROBE, running

pytestmark = pytest.mark.slow

NOT_FOR_SERVERS = {"uncork_loadtests", "locust", "matplotlib", "plotly", "ray", "scipy", "swagger_ui_bundle"}


@pytest.mark.parametrize("command", [("serve", PROBE), ("proxy", "http://127.0.0.1:1")])
def test_a_server_imports_only_what_serves(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")

    with running(*command, wait=False) as server:
        server.wait_for_address()
        HTTP.get(f"{server.base}/dashboard")
        modules = set(re.findall(r"^import time:.*\| +([\w.]+)", server.output, re.MULTILINE))

    packages = {module.partition(".")[0] for module in modules}
    assert "uncork_gateway" in packages
    assert NOT_FOR_SERVERS & packages == set()
    assert "uncork_workers.ray" not in modules
