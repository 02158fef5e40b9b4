"""The OpenAPI document: valid, and true to what is served."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from openapi_spec_validator import validate

from tests.gateway.fake_worker import service
from tests.gateway.gateway_stage import gateway, problem
from tests.gateway.running import turns
from tests.loops import HANG_S
from uncork_gateway.auth import ApiKeys
from uncork_gateway.errors import RefusalReason
from uncork_gateway.pages.models.metadata import models_of
from uncork_gateway.pages.openapi.document import make_openapi
from uncork_gateway.settings import ServerSettings
from uncork_gateway.version import VERSION
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


def test_it_is_valid_and_says_what_the_apis_take() -> None:
    document = document_of(describe_service(Flowers))
    validate(document)

    assert (document["info"]["title"], document["info"]["version"]) == ("Flowers", "7")
    about, errors, server = document["info"]["description"].split("\n\n")
    assert (about, server) == ("Two apis.", f"Served by Uncork {VERSION}.")
    assert errors.startswith("API routes return errors as")
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
    assert anything["requestBody"]["content"] == {"application/json": {"schema": {}, "example": {}}}
    assert "summary" not in anything


def test_a_service_without_a_version_has_a_neutral_one() -> None:
    """The gateway's own version is another thing."""
    info = document_of(service())["info"]

    assert info["version"] == "unversioned"
    assert info["description"].endswith(f"Served by Uncork {VERSION}.")


def test_errors_are_described_in_the_format_of_the_api() -> None:
    """Those that the gateway returns before it looks at the route are problem documents everywhere."""
    apis = [
        ApiDescription(name="x", route="/x", input={"kind": "json"}),
        ApiDescription(name="y", route="/v1/y", input={"kind": "json"}, errors="openai"),
    ]
    document = document_of(ServiceDescription(name="S", apis=apis), keys=KEYS)
    validate(document)

    assert "(RFC 9457); /v1/y in OpenAI's format.\n\n" in document["info"]["description"]
    found = {
        (path, status): [(kind, content["schema"]["$ref"]) for kind, content in described["content"].items()]
        for path in ("/x", "/v1/y")
        for status, described in document["paths"][path]["post"]["responses"].items()
        if status != "200"
    }
    problem_document = [("application/problem+json", "#/components/schemas/Problem")]
    as_openai = [("application/json", "#/components/schemas/OpenAIError")]
    assert found == {
        (path, status): as_openai
        if path == "/v1/y" and status not in ("401", "414", "431")
        else problem_document
        for path, status in found
    }


def test_it_says_which_headers_answers_have() -> None:
    """Headers that are always sent are declared as required."""
    document = document_of(describe_service(Flowers), keys=KEYS)
    responses = document["paths"]["/anything"]["post"]["responses"]

    required = {
        (status, name)
        for status, response in responses.items()
        for name, header in response.get("headers", {}).items()
        if header.get("required")
    }
    assert required == {
        *((status, "X-Request-Id") for status in responses),
        ("200", "X-Batch-Id"),
        ("200", "X-Batch-Size"),
        ("200", "Server-Timing"),
        ("401", "WWW-Authenticate"),
        ("503", "Retry-After"),
    }
    assert "Accept-Encoding" in responses["415"]["headers"]


def test_handlers_may_answer_with_other_statuses() -> None:
    """Refusals are problem documents, unless the handler makes complete answers."""

    class Whatever(Service):
        @api(input=Requests())
        def own(self, requests: RequestBatch) -> list[Any]:
            return list(requests.payloads)

        @api(input=Json())
        def rows(self, items: list[Any]) -> list[Any]:
            return items

    document = document_of(describe_service(Whatever))
    validate(document)

    own = document["paths"]["/own"]["post"]["responses"]
    assert own["200"]["content"] == own["default"]["content"] == {"*/*": {}}
    rows = document["paths"]["/rows"]["post"]["responses"]
    assert set(rows["200"]["content"]) == {"application/json", "application/x-npy", "text/csv"}
    assert set(rows["default"]["content"]) == {"application/problem+json"}


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


@cache
def paths() -> Any:
    """Return the paths of its document, which must be valid."""
    document = document_of(describe_service(Inputs), keys=KEYS)
    validate(document)
    return document["paths"]


def content_of(path: str) -> Any:
    return paths()[path]["post"]["requestBody"]["content"]


def test_bodies_have_examples_that_can_be_sent_as_they_are() -> None:
    """Examples come from the service, or are generated from the schema."""
    rows = content_of("/predict")["application/json"]["examples"]
    assert [one["value"] for one in rows.values()] == [[3, 4], [[3, 4], [3, 4]]]
    table = content_of("/table")
    assert table["text/csv"]["examples"]["two rows"]["value"] == "a,b,c\n" + 2 * "0.5,true,some text\n"
    assert table["application/json"]["examples"]["one row"]["value"] == {
        "a": 0.5,
        "b": True,
        "c": "some text",
    }
    text = content_of("/text")
    assert text["text/plain"]["example"] == text["application/json"]["example"] == 'some "words"'
    assert content_of("/request")["application/json"]["example"] == {"a": 1}


def test_what_is_no_text_is_a_file_to_choose() -> None:
    """A form has a file field for each part."""
    file = {"type": "string", "format": "binary"}

    image = content_of("/image")
    assert image["image/*"]["schema"] == image["application/octet-stream"]["schema"] == file
    assert image["multipart/form-data"]["schema"]["properties"] == {"file": file}
    assert content_of("/pair")["multipart/form-data"]["schema"] == {
        "type": "object",
        "properties": {"left": file, "right": file},
        "required": ["left", "right"],
    }
    assert content_of("/request")["*/*"] == content_of("/explain")["application/x-npy"] == {"schema": file}
    assert content_of("/explain")["application/json"].keys() == {"schema"}


def test_models_of_other_protocols_have_one_path_with_an_example_for_each() -> None:
    """APIs with raw bodies are no models; others have an example if tensors can express it."""
    [model] = paths()["/v1/models/{model}:predict"]["post"]["parameters"]
    assert model["schema"]["default"] == "inputs"
    assert set(model["schema"]["enum"]) == {
        "inputs",
        *(f"inputs.{name}" for name in ("table", "text", "explain", "predict")),
    }
    examples = content_of("/v1/models/{model}:predict")["application/json"]["examples"]
    assert examples["inputs.text"]["value"] == {"instances": ['some "words"']}
    tensors = content_of("/v2/models/{model}/infer")["application/json"]["examples"]
    assert tensors["inputs"]["value"] == {
        "inputs": [{"name": "input-0", "datatype": "INT8", "shape": [1, 2], "data": [[3, 4]]}]
    }
    assert [one["datatype"] for one in tensors["inputs.table"]["value"]["inputs"]] == [
        "FP64",
        "BOOL",
        "BYTES",
    ]
    [explained] = paths()["/v1/models/{model}:explain"]["post"]["parameters"]
    assert explained["schema"]["enum"] == ["inputs"]
    assert "examples" not in content_of("/v1/models/{model}:explain")["application/json"]


async def test_metadata_has_that_of_each_model_as_an_example(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:
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


def test_a_service_that_no_protocol_can_call_has_no_models() -> None:
    class Files(Service):
        """Files only."""

        @api(input=File())
        def size(self, files: list[Any]) -> list[int]:
            """Count."""
            return [len(files)]

    document = document_of(describe_service(Files))

    assert document["paths"].keys() == {"/size"}
    assert [tag["name"] for tag in document["tags"]] == ["Files"]
    assert document["components"]["schemas"].keys() == {"Problem"}


@pytest.mark.parametrize("wants_keys", [False, True])
def test_it_says_whether_a_key_is_wanted(wants_keys: bool) -> None:
    """The others here tell that the document is valid either way."""
    document = document_of(ServiceDescription(name="S", apis=[]), keys=KEYS if wants_keys else None)

    schemes = document["components"].get("securitySchemes", {})
    assert document.get("security", []) == [{name: []} for name in schemes]
    assert {scheme["type"] for scheme in schemes.values()} == ({"apiKey", "http"} if wants_keys else set())


def test_definitions_of_a_schema_become_components() -> None:
    """Definitions are prefixed by the API, because two may use one name."""
    schema = {
        "$ref": "#/$defs/Row",
        "$defs": {"Row": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, "A": {}},
    }
    apis = [
        ApiDescription(name=name, route=f"/{name}", input={"kind": "json"}, schema=schema)
        for name in ("x", "y")
    ]
    document = document_of(ServiceDescription(name="S", apis=apis))
    validate(document)

    components = document["components"]["schemas"]
    assert set(components) == {"Problem", "Error", "x.Row", "x.A", "y.Row", "y.A"}
    assert components["x.Row"]["properties"] == {"a": {"$ref": "#/components/schemas/x.A"}}
    body = document["paths"]["/y"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/y.Row"}


def test_reasons_of_refusals_are_described() -> None:
    """Clients of the document can branch on them."""
    document = document_of(ServiceDescription(name="S", apis=[]))
    problem = document["components"]["schemas"]["Problem"]

    for reason in get_args(RefusalReason):
        assert f" {reason}" in problem["properties"]["reason"]["description"]
    assert "reason" not in problem["required"]


async def test_it_is_served_when_a_worker_has_said_what_there_is(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:
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


def test_what_requests_are_grouped_by_is_described() -> None:
    """Fields are required, and examples have them; a header is not required."""
    document = document_of(describe_service(Grouped))
    validate(document)
    post = {path: document["paths"][path]["post"] for path in ("/predict", "/typed", "/table")}
    open_row = post["/predict"]["requestBody"]["content"]["application/json"]
    assert open_row["schema"]["required"] == ["language"]
    assert open_row["schema"]["properties"]["language"]["type"] == ["string", "number", "boolean"]
    assert open_row["example"] == {"language": "some text"}
    assert [each["name"] for each in post["/predict"]["parameters"]] == [
        *("X-Request-Timeout-Ms", "X-Request-Id", "x-lang")
    ]
    reference, fields = post["/typed"]["requestBody"]["content"]["application/json"]["schema"]["allOf"]
    assert reference == {"$ref": "#/components/schemas/typed.Language"}
    assert fields["required"] == ["language"]
    row, rows = post["/table"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert "language" in row["required"]
    assert rows["items"] == row


class Classed(Service):
    @api(input=Json(), classes={"interactive": 100, "bulk": None})
    def predict(self, rows: list[Any]) -> list[Any]:
        return rows


def test_the_header_that_names_a_class_is_described() -> None:
    document = document_of(describe_service(Classed))
    validate(document)
    *_, header = document["paths"]["/predict"]["post"]["parameters"]
    assert header["name"] == "X-Request-Class"
    assert header["schema"] == {"type": "string", "enum": ["interactive", "bulk"], "default": "interactive"}
