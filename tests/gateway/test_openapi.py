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
from uncork_workers.adapters import Json, NdArray
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


@pytest.mark.parametrize("status", [400, 413, 415, 500, 502, 503, 504])
def test_it_says_what_errors_look_like(status: int) -> None:
    """As problem documents, each that a client can meet."""
    responses = make_openapi(describe_service(Flowers), version="1")["paths"]["/anything"]["post"][
        "responses"
    ]

    schema = responses[str(status)]["content"]["application/problem+json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Problem"}


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
