"""Errors for unknown paths and methods: the nearest route and its method."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage, client_of, gateway, problem
from uncork_workers.wire.schema import ApiDescription

SERVES = service(json_api("predict"), json_api("predict_proba"), name="Digits")


async def told(on: Any, method: str, path: str) -> str:
    reply = await on.http.request(method, path)
    assert reply.status_code == 404, reply.text
    document = reply.json()
    text: str = document["error"] if "error" in document else document["detail"]
    return text


@pytest.mark.parametrize(
    ("method", "path", "near"),
    [
        ("POST", "/predit", "POST /predict"),
        ("GET", "/predict_prob", "POST /predict_proba"),
        ("POST", "/predict/", "POST /predict"),
        ("POST", "/api/predict", "POST /predict"),
        ("GET", "/metric", "GET /metrics"),
        ("GET", "/readyz/", "GET /readyz"),
        ("GET", "/openapi", "GET /openapi.json"),
        ("POST", "/v1/models/digits:predic", "POST /v1/models/digits:predict"),
        ("POST", "/v2/models/digits/inference", "POST /v2/models/digits/infer"),
        ("GET", "/v2/models/digits/redy", "GET /v2/models/digits/ready"),
    ],
)
async def test_the_nearest_route_is_named(on: GatewayStage, method: str, path: str, near: str) -> None:
    await on.worker(serves=SERVES)

    assert await told(on, method, path) == f"no route for {path}; did you mean {near}?"


@pytest.mark.parametrize("path", ["/nothing/at/all", "/" + "x" * 5000])
async def test_where_nothing_is_near_the_apis_are_named(on: GatewayStage, path: str) -> None:
    await on.worker(serves=SERVES)

    says = "available APIs: POST /predict, POST /predict_proba"
    assert await told(on, "GET", path) == f"no route for {path}; {says}"


async def test_an_api_below_v1_is_named_like_any_other(on: GatewayStage) -> None:
    """Only ``/v1/models`` belongs to other protocols."""
    embeddings = ApiDescription(name="embed", route="/v1/embeddings", input={"kind": "json"})
    await on.worker(serves=service(embeddings))

    nearest = await on.http.post("/v1/embedding")
    assert problem(nearest, 404) == "no route for /v1/embedding; did you mean POST /v1/embeddings?"
    unlike = await on.http.post("/nothing/at/all")
    assert problem(unlike, 404).endswith("available APIs: POST /v1/embeddings")
    assert problem(await on.http.get("/v1/embeddings"), 405).endswith("use POST")


async def test_errors_of_text_models_have_one_form_at_all_routes(on: GatewayStage) -> None:
    """Cohere's /v2/rerank is one of them, although /v2 belongs to the Open Inference Protocol."""
    paths = ("/v1/rerank", "/v2/rerank", "/rerank")
    rank = ApiDescription(name="rank", route="/rank", input={"kind": "json"}, aliases=paths, task="rerank")
    await on.worker(serves=service(rank))

    for path in paths:
        assert problem(await on.http.get(path), 405) == f"GET is not allowed for {path}; use POST"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", {"GET", "HEAD"}),
        ("/livez", {"GET", "HEAD"}),
        ("/predict", {"POST"}),
        ("/v1/models/digits:predict", {"POST"}),
        ("/v2/models/digits/versions/1", {"GET", "HEAD"}),
        ("/v2/repository/models/digits/load", {"POST"}),
        ("*", {"GET", "HEAD", "OPTIONS", "POST"}),
    ],
)
async def test_options_has_the_methods(tmp_path: Path, path: str, allowed: set[str]) -> None:
    """For ``*`` these are the methods of the server."""
    async with gateway(tmp_path, admin=True) as on, client_of(on.gateway.front_end.admin_app) as admin:
        await on.worker(serves=SERVES)
        mine = await on.http.request("OPTIONS", "/", extensions={"target": path.encode()})
        theirs = await admin.request("OPTIONS", "/metrics")
        unknown = await on.http.request("OPTIONS", "/nothing")

        assert (mine.status_code, mine.content) == (204, b"")
        assert set(mine.headers["allow"].split(", ")) == allowed
        assert (theirs.status_code, theirs.headers["allow"]) == (204, "GET, HEAD")
        assert problem(unknown, 404).startswith("no route for /nothing")


async def test_operators_are_told_of_their_own_routes(tmp_path: Path) -> None:
    async with gateway(tmp_path, admin=True) as on, client_of(on.gateway.front_end.admin_app) as admin:
        await on.worker(serves=SERVES)

        elsewhere = "client routes are on another port"
        says = f"no route for /metric; did you mean GET /metrics? {elsewhere}"
        assert problem(await admin.get("/metric"), 404) == says
        assert problem(await admin.post("/predict"), 404) == f"no route for /predict; {elsewhere}"
        assert problem(await admin.post("/metrics"), 405) == ("POST is not allowed for /metrics; use GET")


async def test_operators_who_name_a_model_wrongly_get_the_names(tmp_path: Path) -> None:
    async with gateway(tmp_path, admin=True) as on, client_of(on.gateway.front_end.admin_app) as admin:
        await on.worker(serves=SERVES)
        [*_, model] = on.gateway.catalogue.models

        unknown = await admin.get("/v2/models/nobody/stats")
        assert unknown.status_code == 404
        assert unknown.json()["error"].startswith(
            "Request for unknown model: 'nobody' is not found; available"
        )
        reply = await admin.post(f"/v2/models/{model}/stats")
        assert (reply.status_code, "GET" in reply.headers["allow"]) == (405, True)


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
