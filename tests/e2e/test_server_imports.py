"""A server imports neither the load tests nor the libraries that only they and pages need."""

from __future__ import annotations

import re

import pytest

from tests.e2e.server import HTTP, PROBE, running

NOT_FOR_SERVERS = {"uncork_loadtests", "locust", "matplotlib", "plotly", "scipy", "swagger_ui_bundle"}


@pytest.mark.parametrize("command", [("serve", PROBE), ("proxy", "http://127.0.0.1:1")])
def test_a_server_imports_only_what_serves(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")

    with running(*command, wait=False) as server:
        server.wait_for_address()
        HTTP.get(f"{server.base}/dashboard")
        imported = re.findall(r"^import time:.*\| +(\w+)", server.output, re.MULTILINE)

    assert "uncork_gateway" in imported
    assert NOT_FOR_SERVERS & set(imported) == set()
