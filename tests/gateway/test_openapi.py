"""The OpenAPI document: valid, and true to what is served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from openapi_spec_validator import validate

from uncork_gateway.openapi import make_openapi
from uncork_workers.adapters import Json, NdArray, RequestBatch, Requests
from uncork_workers.description import ApiDescription, ServiceDescription
from uncork_workers.frames import Hello
from uncork_workers.service import Service, api, describe_service

from .gateway_stage import gateway, problem
from .running import run, turns


class Flowers(Service):
    """Two apis."""

    @api(input=NdArray(dtype="int32", shape=(2, None)), route="/ask/here")
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Say what it is.

        At some length.
        """
        return rows

    @api(input=Json())
    def anything(self, items: list[Any]) -> list[Any]:  # noqa: D102  # what an api without words looks like
        return items


def test_it_is_valid_and_says_what_the_apis_take() -> None:
    """One row or many for arrays, media types, the words of the handler."""
    document = make_openapi(describe_service(Flowers), version="7")
    validate(document)

    assert document["info"] == {"title": "Flowers", "version": "7"}
    predict = document["paths"]["/ask/here"]["post"]
    assert (predict["operationId"], predict["summary"]) == ("predict", "Say what it is.")
    assert predict["description"] == "At some length."
    content = predict["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-npy"}
    row = {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        "minItems": 2,
        "maxItems": 2,
    }
    assert content["application/json"]["schema"]["anyOf"] == [
        row,
        {"type": "array", "items": row, "minItems": 1},
    ]
    assert set(predict["responses"]["200"]["content"]) == {
        "application/json",
        "application/x-npy",
        "text/csv",
    }
    anything = document["paths"]["/anything"]["post"]
    assert anything["requestBody"]["content"] == {"application/json": {"schema": {}}}
    assert "summary" not in anything


@pytest.mark.parametrize("status", [400, 401, 408, 413, 414, 415, 431, 500, 502, 503, 504])
def test_it_says_what_errors_look_like(status: int) -> None:
    """As problem documents, each that a client can meet."""
    responses = make_openapi(describe_service(Flowers), version="1")["paths"]["/anything"]["post"][
        "responses"
    ]

    schema = responses[str(status)]["content"]["application/problem+json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Problem"}


def test_it_says_which_headers_answers_have() -> None:
    """Those that are always there are required; a client may rely on them."""
    responses = make_openapi(describe_service(Flowers), version="1")["paths"]["/anything"]["post"][
        "responses"
    ]

    required = {
        (status, name)
        for status, response in responses.items()
        for name, header in response.get("headers", {}).items()
        if header.get("required")
    }
    assert required == {
        ("200", "X-Batch-Id"),
        ("200", "X-Batch-Size"),
        ("200", "Server-Timing"),
        ("401", "WWW-Authenticate"),
        ("503", "Retry-After"),
    }
    assert "Accept-Encoding" in responses["415"]["headers"]


def test_handlers_may_answer_with_other_statuses() -> None:
    """With a refusal as a problem; where each answer is the handler's own, with whatever it makes."""

    class Whatever(Service):
        @api(input=Requests())
        def own(self, requests: RequestBatch) -> list[Any]:
            return list(requests.payloads)

        @api(input=Json())
        def rows(self, items: list[Any]) -> list[Any]:
            return items

    document = make_openapi(describe_service(Whatever), version="1")
    validate(document)

    own = document["paths"]["/own"]["post"]["responses"]
    assert own["200"]["content"] == own["default"]["content"] == {"*/*": {}}
    rows = document["paths"]["/rows"]["post"]["responses"]
    assert set(rows["200"]["content"]) == {"application/json", "application/x-npy", "text/csv"}
    assert set(rows["default"]["content"]) == {"application/problem+json"}


def test_definitions_of_a_schema_become_components() -> None:
    """Of each api its own: two may use one name for different things."""
    schema = {
        "$ref": "#/$defs/Row",
        "$defs": {"Row": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, "A": {}},
    }
    apis = [
        ApiDescription(name=name, route=f"/{name}", input={"kind": "json"}, schema=schema)
        for name in ("x", "y")
    ]
    document = make_openapi(ServiceDescription(name="S", apis=apis), version="1")
    validate(document)

    components = document["components"]["schemas"]
    assert set(components) == {"Problem", "x.Row", "x.A", "y.Row", "y.A"}
    assert components["x.Row"]["properties"] == {"a": {"$ref": "#/components/schemas/x.A"}}
    body = document["paths"]["/y"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/y.Row"}


def test_it_is_served_when_a_worker_has_said_what_there_is(tmp_path: Path) -> None:
    """Before that nobody knows."""

    async def scenario() -> None:
        async with gateway(tmp_path) as on:
            assert "no worker is ready" in problem(await on.http.get("/openapi.json"), 503)
            worker = await on.connect()
            worker.send(Hello(index=0, pid=1, service=describe_service(Flowers)))
            async with asyncio.timeout(5):
                await on.gateway.described
            await turns()
            reply = await on.http.get("/openapi.json")

            assert reply.headers["content-type"] == "application/json"
            assert msgspec.json.decode(reply.content)["paths"].keys() == {"/ask/here", "/anything"}

    run(scenario())
