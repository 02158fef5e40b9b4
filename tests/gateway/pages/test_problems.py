"""Errors of paths without an API: each names its request."""

from pathlib import Path

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import client_of, gateway, problem

OTHER_SITE = {"origin": "https://evil.example", "host": "localhost"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/nothing", 404),
        ("GET", "/predict", 405),
        ("DELETE", "/metrics", 405),
        ("GET", "/docs/nothing", 404),
        ("GET", "/readyz/nothing", 404),
        ("GET", "/v2/models/nothing", 404),
        ("PUT", "/v2", 405),
    ],
)
@pytest.mark.parametrize("given", [{"x-request-id": "mine"}, {}])
async def test_an_error_names_its_request(
    tmp_path: Path, method: str, path: str, status: int, given: dict[str, str]
) -> None:
    """In the header, and in the body where its form has a place for it."""
    async with gateway(tmp_path) as on:
        await on.worker(serves=service(json_api("predict")))
        reply = await on.http.request(method, path, headers=given)

    assert reply.status_code == status
    assert given.get("x-request-id", reply.headers["x-request-id"]) == reply.headers["x-request-id"]
    if not path.startswith("/v2"):
        problem(reply, status)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [("POST", "/status", OTHER_SITE, 403), ("GET", "/nothing", {}, 404), ("PUT", "/status", {}, 405)],
)
async def test_an_error_for_operators_names_its_request(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """The connection puts an id into every scope."""
    async with gateway(tmp_path, admin=True) as on, client_of(on.gateway.front_end.admin_app) as admin:
        reply = await admin.request(method, path, headers={**headers, "x-request-id": "mine"})

    assert (reply.status_code, reply.json()["request_id"]) == (status, "mine")
