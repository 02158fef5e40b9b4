"""Example results in the OpenAPI document: never those of clients, and as the gateway would send them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.running import turns
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.pages.models.tensors import Outputs
from uncork_gateway.pages.openapi.results import example_result
from uncork_gateway.protocols.tensor_rows import output_tensors
from uncork_workers.wire.forms import ListForm
from uncork_workers.wire.messages import Hello, Ready, RowResult
from uncork_workers.wire.schema import CSV, JSON, NPY, ApiDescription

WARM_UP = "result of the warm-up example"
MADE_UP = "made-up values with the type and shape of earlier results"


def array_api(name: str = "predict", **more: Any) -> ApiDescription:
    """An API that accepts arrays and has an example of a request."""
    described: dict[str, Any] = {
        "input": {"kind": "ndarray", "dtype": "float32", "shape": [2]},
        "offers": (JSON, NPY, CSV),
        "example": b"[1.5,2.5]",
        "example_type": JSON,
    }
    return ApiDescription(name=name, route=f"/{name}", **described | more)


async def warmed_up(on: GatewayStage, *apis: tuple[ApiDescription, RowResult | None]) -> FakeWorker:
    worker = await on.connect()
    worker.send(Hello(index=0, launch=1, service=service(*(api for api, _ in apis))))
    worker.send(Ready(results={api.name: result for api, result in apis if result is not None}))
    await on.gateway.front_end.ready.wait()
    await turns()
    return worker


async def document_of(on: GatewayStage) -> Any:
    document = (await on.http.get("/openapi.json")).json()
    validate(document)
    return document


def shown(document: Any, path: str = "/predict") -> dict[str, Any]:
    """Return the example of each media type of the answer to a POST at a path, with its summary."""
    content: Mapping[str, Any] = document["paths"][path]["post"]["responses"]["200"]["content"]
    found = {}
    for media_type, described in content.items():
        for example in described.get("examples", {}).values():
            found[media_type] = (example["summary"], example["value"])
    return found


async def test_the_warm_up_is_the_example_in_each_media_type(tmp_path: Path) -> None:
    """A file such as .npy cannot be shown."""
    results = {
        "number": (RowResult(body=b"2", form=ListForm("INT64", ())), 2, "0\r\n2\r\n"),
        "row": (
            RowResult(body=b"[0.25,0.75]", form=ListForm("FP32", (2,))),
            [0.25, 0.75],
            "0,1\r\n0.25,0.75\r\n",
        ),
        "text": (RowResult(body=b'"red, dry"'), "red, dry", '0\r\n"red, dry"\r\n'),
        "object": (
            RowResult(body=b'{"label":"a","scores":[1,null],"best":null}'),
            {"label": "a", "scores": [1, None], "best": None},
            'label,scores,best\r\na,"[1,null]",\r\n',
        ),
    }
    async with gateway(tmp_path) as on:
        await warmed_up(on, *((array_api(name), result) for name, (result, _, _) in results.items()))
        document = await document_of(on)

    for name, (_, value, csv) in results.items():
        assert shown(document, f"/{name}") == {JSON: (WARM_UP, value), CSV: (WARM_UP, csv)}


async def test_a_complete_response_has_its_own_media_type(tmp_path: Path) -> None:
    page = RowResult(body="<p>grün</p>".encode(), content_type="text/html; charset=utf-8")
    json = RowResult(body=b'{"a":1}', content_type=JSON)
    apis = [
        (array_api(f"{name}-{answers_each}", answers_each=answers_each), result)
        for answers_each in (False, True)
        for name, result in (("page", page), ("json", json))
    ]
    async with gateway(tmp_path) as on:
        await warmed_up(on, *apis)
        document = await document_of(on)

    for api, _ in apis:
        expected = ("text/html", "<p>grün</p>") if api.name.startswith("page") else (JSON, {"a": 1})
        assert shown(document, api.route) == {expected[0]: (WARM_UP, expected[1])}
        content = document["paths"][api.route]["post"]["responses"]["200"]["content"]
        assert ("*/*" in content) is api.answers_each
    assert shown(document, "/v1/models/{model}:predict") == {}


async def test_other_protocols_show_what_their_clients_get(on: GatewayStage) -> None:
    """The example of a request gets the example of the answer, apart from the batch."""
    result = RowResult(body=b"[0.25,0.75]", form=ListForm("FP32", (2,)))
    worker = await warmed_up(on, (array_api(), result))
    document = await document_of(on)
    for path in (
        "/v1/models/{model}:predict",
        "/v1/models/{model}/versions/1:predict",
        "/v2/models/{model}/infer",
    ):
        post = document["paths"][path]["post"]
        for model in ("fake", "fake.predict"):
            request = post["requestBody"]["content"][JSON]["examples"][model]["value"]
            said = post["responses"]["200"]["content"][JSON]["examples"][model]
            asking = on.post(path.replace("{model}", model), request)
            batch, _ = await worker.batch()
            worker.answer(batch, [result.body], forms=[result.form])
            reply = (await asking).json()

            assert said["summary"] == WARM_UP
            if "batchId" in reply:
                reply["batchId"] = said["value"]["batchId"]
            assert said["value"] == reply


async def test_without_a_warm_up_values_are_made_up(tmp_path: Path) -> None:
    """The shape is that of a client's result, whose values never show."""
    async with gateway(tmp_path) as on:
        worker = await warmed_up(on, (array_api(), None))
        assert shown(await document_of(on)) == {}

        asking = on.post("/predict", [1, 2])
        batch, _ = await worker.batch()
        worker.answer(batch, [b"[7.25,7.75]"], forms=[ListForm("FP32", (2,))])
        await asking
        document = await document_of(on)

    assert shown(document) == {JSON: (MADE_UP, [0.5, 0.5]), CSV: (MADE_UP, "0,1\r\n0.5,0.5\r\n")}
    _, tensors = shown(document, "/v2/models/{model}/infer")[JSON]
    assert tensors["outputs"] == [
        {"name": "output-0", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 0.5]}
    ]
    assert b"7.25" not in msgspec.json.encode(document)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (b"7", 1),
        (b"true", True),
        (b"7.5", 0.5),
        (b"[[7,7,7]]", [[1, 1, 1]]),
        (b'{"a":7,"b":[7.5,7.5]}', {"a": 1, "b": [0.5, 0.5]}),
        (b'"secret"', None),
        (b'{"a":7,"b":{"secret":7}}', None),
        (b"[%b]" % b",".join([b"7"] * 65), None),
    ],
)
def test_values_are_made_up_for_numbers_in_small_results(row: bytes, value: Any) -> None:
    """Text may be of any form, such as the JSON of an object."""
    outputs = Outputs()
    for body in (row, row.replace(b"7", b"8")):
        outputs.saw_results([HandlerResult(200, body)])
    example = example_result(outputs)

    assert (None if example is None else example.value()) == value


def test_lengths_that_vary_are_made_up() -> None:
    outputs = Outputs()
    for row in (b"[1,2,3]", b"[1]"):
        outputs.saw(output_tensors(row, None, rows=1, binary=lambda name: False))
    example = example_result(outputs)

    assert example is not None
    assert example.value() == [1, 1]


@pytest.mark.parametrize(
    "result",
    [
        HandlerResult(200, b"{"),
        HandlerResult(200, b"", ListForm("FP32", (9,))),
        HandlerResult(200, b"\xff", content_type="text/plain"),
        HandlerResult(200, b'"%b"' % (b"x" * 17_000)),
    ],
)
def test_a_warm_up_that_cannot_be_shown_has_no_substitute(result: HandlerResult) -> None:
    """Results that are malformed, large or not text."""
    outputs = Outputs()
    outputs.saw_warm_up(result)

    assert example_result(outputs) is None


def test_the_first_warm_up_is_kept() -> None:
    """So the document does not depend on which worker was ready last."""
    outputs = Outputs()
    for body in (b"1", b"2"):
        outputs.saw_warm_up(HandlerResult(200, body))
    outputs.saw_results([HandlerResult(200, b"3")])
    example = example_result(outputs)

    assert example is not None
    assert example.value() == 1
