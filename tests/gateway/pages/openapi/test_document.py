"""The OpenAPI document: valid, and true to what is served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from openapi_spec_validator import validate

from tests.expected import check_texts
from tests.gateway.gateway_stage import GatewayStage, problem
from tests.gateway.running import turns
from tests.loops import HANG_S
from uncork_gateway.auth import ApiKeys
from uncork_gateway.pages.models.metadata import models_of
from uncork_gateway.pages.openapi.document import make_openapi
from uncork_gateway.settings import ServerSettings
from uncork_workers.definition.adapters import (
    DataFrame,
    File,
    Image,
    Json,
    NdArray,
    Request,
    RequestBatch,
    Requests,
    Text,
)
from uncork_workers.definition.outputs.media_types import Image as ImageFile
from uncork_workers.definition.service import Service, api, describe_service
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.messages import Hello
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

KEYS = ApiKeys([b"a-key-of-the-tests"])


def document_of(service: ServiceDescription, **settings: Any) -> dict[str, Any]:
    """Return the document of a service whose outputs are unknown."""
    models = {
        name: {model.version: model} for name, model in models_of(service.name.lower(), service).items()
    }
    return make_openapi({service.name.lower(): service}, models, ServerSettings(**settings))


class Flowers(Service):
    """Two apis."""

    version = "7"

    @api(input=NdArray(dtype="int32", shape=(2, None)), route="/ask/here")
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Say what it is.

        At some length.
        """
        return rows

    @api(input=Json())
    def anything(self, items: list[Any]) -> list[Any]:  # what an api without words looks like
        return items


class Inputs(Service):
    """Bodies of all kinds."""

    @api(input=DataFrame(columns=["a", "b", "c"], dtypes={"b": "bool", "c": "str"}))
    def table(self, table: Any) -> Any:
        """Return it."""
        return table

    @api(input=Text(), warmup='some "words"')
    def text(self, texts: list[str]) -> list[str]:
        """Return them."""
        return texts

    @api(input=Image(), output=ImageFile())
    def image(self, images: list[Any]) -> list[Any]:
        """Return them."""
        return images

    @api(input=File(parts=("left", "right")))
    def pair(self, forms: list[Any]) -> list[int]:
        """Count."""
        return [len(form) for form in forms]

    @api(input=Requests(), warmup=Request(body=b'{"a": 1}'))
    def request(self, requests: RequestBatch) -> list[Any]:
        """Return them."""
        return list(requests.payloads)

    @api(input=NdArray(shape=(3, 224, 224)))
    def explain(self, rows: Any) -> Any:
        """Return them."""
        return rows

    @api(input=NdArray(dtype="int8", shape=(2,)), warmup=[3, 4])
    def predict(self, rows: Any) -> Any:
        """Return them."""
        return rows


async def test_metadata_has_that_of_each_model_as_an_example(on: GatewayStage) -> None:
    worker = await on.worker(serves=describe_service(Flowers))
    await on.echo(worker, "/anything", 7)
    document = (await on.http.get("/openapi.json")).json()
    described = document["paths"]["/v2/models/{model}"]["get"]["responses"]["200"]
    examples = described["content"]["application/json"]["examples"]

    assert examples.keys() == {"flowers", "flowers.anything", "flowers.predict"}
    for model, example in examples.items():
        assert example["value"] == (await on.http.get(f"/v2/models/{model}")).json()
    [output] = examples["flowers.anything"]["value"]["outputs"]
    assert output == {"name": "output-0", "datatype": "INT64", "shape": [-1]}


async def test_it_is_served_when_a_worker_has_said_what_there_is(on: GatewayStage) -> None:
    assert "no worker is ready" in problem(await on.http.get("/openapi.json"), 503)
    worker = await on.connect()
    worker.send(Hello(index=0, launch=1, service=describe_service(Flowers)))
    async with asyncio.timeout(HANG_S):
        await on.service.events.described
    await turns()
    reply = await on.http.get("/openapi.json")

    assert reply.headers["content-type"] == "application/json"
    assert {"/ask/here", "/anything"} < msgspec.json.decode(reply.content)["paths"].keys()


class Language(msgspec.Struct):
    text: str
    language: str = "en"


class Grouped(Service):
    @api(input=Json(), group_by=("language", "header:X-Lang"))
    def predict(self, rows: list[Any]) -> list[Any]:
        return rows

    @api(input=Json(type=Language), group_by="language")
    def typed(self, rows: list[Any]) -> list[Any]:
        return rows

    @api(input=DataFrame(dtypes={"a": "int64"}), group_by="language")
    def table(self, rows: Any) -> Any:
        return rows


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: int


class Pets(Service):
    @api(input=Json(type=Cat | Dog))
    def predict(self, rows: list[Any]) -> list[Any]:
        return rows


class Classed(Service):
    @api(input=Json(), classes={"interactive": 100, "bulk": None}, headers=("X-Request-Id", "x-tenant"))
    def predict(self, rows: list[Any]) -> list[Any]:
        return rows


class Kinds(Service):
    """An API for each kind of input."""

    @api(input=NdArray(shape=(4,)))
    def array(self, rows: np.ndarray[Any, Any]) -> Any:
        return rows

    @api(input=DataFrame(columns=["a", "b"]))
    def table(self, table: Any) -> Any:
        return table

    @api(input=Json())
    def value(self, items: list[Any]) -> Any:
        raise ValueError

    @api(input=Json(), cost="words")
    def costly(self, items: list[Any]) -> Any:
        return items

    @api(input=Text())
    def text(self, texts: list[str]) -> Any:
        return texts

    @api(input=Image())
    def image(self, images: list[Any]) -> Any:
        return images

    @api(input=File(parts=("left",)))
    def form(self, forms: list[Any]) -> Any:
        return forms

    @api(input=Requests())
    def anything(self, requests: Any) -> Any:
        return requests


class Files(Service):
    """Files only."""

    @api(input=File())
    def size(self, files: list[Any]) -> list[int]:
        """Count."""
        return [len(files)]


SCHEMA = {
    "$ref": "#/$defs/Row",
    "$defs": {"Row": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, "A": {}},
}
X = ApiDescription(name="x", route="/x", input={"kind": "json"}, schema=SCHEMA)
Y = ApiDescription(name="y", route="/v1/y", input={"kind": "json"}, schema=SCHEMA, errors="openai")
DOCUMENTS: dict[str, tuple[ServiceDescription, dict[str, Any]]] = {
    "two APIs": (describe_service(Flowers), {}),
    "all inputs, and keys": (describe_service(Inputs), {"keys": KEYS}),
    "an API of each kind, and a limit": (describe_service(Kinds), {"max_body_bytes": 77}),
    "groups": (describe_service(Grouped), {}),
    "classes": (describe_service(Classed), {}),
    "no models": (describe_service(Files), {}),
    "definitions of a schema, and errors of OpenAI": (
        ServiceDescription(name="S", apis=[X, Y]),
        {"keys": KEYS},
    ),
}


def lines_of(document: dict[str, Any], known: set[str]) -> Iterator[str]:
    """Yield a document in lines: one for each property of an operation, media type and response.

    An operation names those of its lines that are ``known`` from others.
    """

    def line(name: str, value: Any) -> str:
        return f"{name}: {msgspec.json.encode(value).decode().replace(VERSION, 'VERSION')}"

    yield from (line(part, value) for part, value in document.items() if part not in ("components", "paths"))
    for kind, components in document["components"].items():
        yield from (line(f"{kind} {name}", component) for name, component in components.items())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}"
            bodies = operation.get("requestBody", {}).pop("content", {})
            responses = operation.pop("responses")
            values = {**operation, **bodies, **responses}
            parts = {name: line(f"    {name}", value) for name, value in values.items()}
            yield from (text for text in parts.values() if text not in known)
            if same := [name for name, text in parts.items() if text in known]:
                yield f"    as above: {', '.join(same)}"
            known |= {*parts.values()}


def test_documents_are_valid_and_as_reviewed() -> None:
    lines: list[str] = []
    known: set[str] = set()
    for name, (described, settings) in DOCUMENTS.items():
        document = document_of(described, **settings)
        validate(document)
        lines += [f"# {name}", *lines_of(document, known), ""]

    check_texts(Path(__file__).with_name("documents.txt"), "\n".join(lines))


def test_the_mapping_of_a_discriminator_names_schemas_of_the_document() -> None:
    document = document_of(describe_service(Pets))
    validate(document)
    schema = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]

    mapping = schema["discriminator"]["mapping"]
    assert mapping == {name: f"#/components/schemas/predict.{name}" for name in ("Cat", "Dog")}
    assert {"predict.Cat", "predict.Dog"} < document["components"]["schemas"].keys()


def test_schemas_of_versions_have_names_that_the_standard_allows() -> None:
    described = ServiceDescription(name="S", apis=[X])
    document = make_openapi({"s": described, "s@2": described}, {}, ServerSettings())

    validate(document)
    assert {"s.x.Row", "s.2.x.Row"} < document["components"]["schemas"].keys()
