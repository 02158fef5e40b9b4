"""The errors in the OpenAPI document: those that an API can give, as the gateway gives them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.pages.openapi.test_document import KEYS, Kinds, document_of
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_workers.definition.service import describe_service
from uncork_workers.process.batches.execution import Executor
from uncork_workers.wire.messages import Batch

PROBLEM = "application/problem+json"


def details(path: str, status: str, **settings: Any) -> dict[str, str]:
    """Return the messages of a status at a path, by the name of the example."""
    document = document_of(describe_service(Kinds), **settings)
    [content] = document["paths"][path]["post"]["responses"][status]["content"].values()
    return {name: example["value"]["detail"] for name, example in content["examples"].items()}


def test_a_handler_fails_as_in_a_worker() -> None:
    """The worker writes this message; only its id varies."""
    batch = Batch(batch=0, api="value", limit_rows=1, lengths=[1], rows=[1])
    _, [body] = Executor(Kinds()).run(batch, [b"1"])
    [said] = details("/value", "500").values()

    an_id = r"[0-9a-f]{12}$"
    assert re.sub(an_id, "", body.decode()) == re.sub(an_id, "", said) != said


async def rejected(on: GatewayStage, name: str) -> httpx.Response:
    match name:
        case "body":
            return await on.http.post("/array", json={"column": 1})
        case "header":
            return await on.http.post("/array", json=[1], headers={"x-request-timeout-ms": "soon"})
        case "content type":
            return await on.http.post("/array", headers={"content-type": "application/xml"})
        case "content encoding":
            return await on.http.post("/array", headers={"content-encoding": "br"})
        case "size":
            return await on.http.post("/array", content=b" " * 100)
        case "target":
            return await on.http.post(f"/array?{'a' * 20_000}")
        case "host":
            return await on.http.post("/array", headers={"host": "other.example.com"})
        case "headers":
            return await on.http.post("/array", headers={"x-long": "y" * 70_000})
        case "key":
            return await on.http.post("/array", headers={"x-api-key": ""})
        case _:
            await on.gateway.front_end.drain()
            return await on.http.post("/array", json=[1, 2, 3, 4])


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "body"),
        (400, "header"),
        (401, "key"),
        (413, "size"),
        (414, "target"),
        (415, "content type"),
        (415, "content encoding"),
        (421, "host"),
        (431, "headers"),
        (503, "shutting down"),
    ],
)
async def test_an_example_is_what_the_gateway_answers(tmp_path: Path, status: int, name: str) -> None:
    limits = ClientLimits(allowed_hosts=frozenset({"gateway"}))
    settings: dict[str, Any] = {"keys": KEYS, "max_body_bytes": 99, "clients": limits}
    async with gateway(tmp_path, **settings) as on:
        on.http.headers["x-api-key"] = "a-key-of-the-tests"
        await on.worker(serves=describe_service(Kinds))
        reply = await rejected(on, name)

    assert (reply.status_code, reply.headers["content-type"]) == (status, PROBLEM)
    responses = document_of(describe_service(Kinds), **settings)["paths"]["/array"]["post"]["responses"]
    said = responses[str(status)]
    body = reply.json()
    assert body.pop("request_id") == reply.headers["x-request-id"]
    assert said["content"][PROBLEM]["examples"][name]["value"] == body
    required = {header.lower() for header, one in said.get("headers", {}).items() if one.get("required")}
    assert required <= reply.headers.keys()


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/models/{model}:predict", "must have either 'instances' or 'inputs', got neither"),
        ("/v2/models/{model}/infer", "'inputs'"),
    ],
)
async def test_other_protocols_have_their_own_form(tmp_path: Path, path: str, detail: str) -> None:
    document = document_of(describe_service(Kinds), keys=KEYS)
    responses = document["paths"][path]["post"]["responses"]

    assert responses.keys() == document["paths"]["/value"]["post"]["responses"].keys()
    said = responses["400"]["content"]["application/json"]
    assert said["schema"] == {"$ref": "#/components/schemas/Error"}
    assert detail in said["examples"]["body"]["value"]["error"]
    assert responses["414"]["content"].keys() == {PROBLEM}
    async with gateway(tmp_path) as on:
        await on.worker(serves=describe_service(Kinds))
        reply = await on.http.post(path.replace("{model}", "kinds.array"), json={"column": 1})
    assert (reply.status_code, reply.json()) == (400, said["examples"]["body"]["value"])


def test_pages_of_models_fail_without_a_key_or_a_worker() -> None:
    for keys, codes in ((None, set()), (KEYS, {"401"})):
        paths = document_of(describe_service(Kinds), keys=keys)["paths"]

        assert paths["/v1/models/{model}"]["get"]["responses"].keys() == {"200", "503", *codes}
        assert paths["/v2/models/{model}"]["get"]["responses"].keys() == {"200", *codes}


async def test_the_state_of_a_model_is_as_shown(on: GatewayStage) -> None:
    described = describe_service(Kinds)
    state = document_of(described)["paths"]["/v1/models/{model}"]["get"]["responses"]
    await on.worker(serves=described)
    for status in ("200", "503"):
        [(model, example)] = state[status]["content"]["application/json"]["examples"].items()
        reply = await on.http.get(f"/v1/models/{model}")
        assert (str(reply.status_code), reply.json()) == (status, example["value"])
        on.gateway.front_end.retire()
