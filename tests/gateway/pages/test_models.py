"""The APIs of a service as models: paths and metadata."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway.fake_worker import FakeWorker, array_api, json_api, service
from tests.gateway.gateway_stage import GatewayStage
from tests.gateway.proxy_stage import error
from uncork_gateway.pages.models.metadata import models_of
from uncork_workers.wire.forms import ListForm
from uncork_workers.wire.messages import Hello, Ready, RowResult
from uncork_workers.wire.schema import ApiDescription, ServiceDescription


def one_of_two() -> ServiceDescription:
    return service(json_api("one"), json_api("two"), name="Pair")


# Names and paths


@pytest.mark.parametrize(
    ("apis", "models"),
    [
        (["echo"], {"fake": "echo", "fake.echo": "echo"}),
        (["embed", "predict"], {"fake": "predict", "fake.embed": "embed", "fake.predict": "predict"}),
        (["one", "two"], {"fake.one": "one", "fake.two": "two"}),
    ],
)
def test_the_service_s_name_means_its_main_api(apis: list[str], models: dict[str, str]) -> None:
    """The service's name means ``predict`` or the only API; every API also has its own name."""
    found = models_of("fake", service(*map(json_api, apis), name="Fake"))

    assert {name: model.api.name for name, model in found.items()} == models
    assert all(model.name == name for name, model in found.items())


async def test_every_path_leads_to_the_worker_and_back(on: GatewayStage) -> None:
    """Each path runs its API in its own protocol."""
    apis = (json_api("embed"), json_api("predict"), json_api("explain"))
    v1, v2 = {"instances": [5]}, {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [5]}]}
    asked = [
        ("/v1/models/fake:predict", v1, "predict", "predictions"),
        ("/v1/models/fake:explain", v1, "explain", "explanations"),
        ("/v1/models/fake.embed:predict", v1, "embed", "predictions"),
        ("/v1/models/fake/versions/1:predict", v1, "predict", "predictions"),
        ("/v1/models/fake%2Eembed/versions/1:predict", v1, "embed", "predictions"),
        ("/v2/models/fake/infer", v2, "predict", "outputs"),
        ("/v2/models/fake.explain/versions/1/infer", v2, "explain", "outputs"),
    ]

    worker = await on.worker(serves=service(*apis))
    for path, body, api, member in asked:
        batch, reply = await on.echo(worker, path, body)

        assert (batch.api, batch.rows, reply.status_code) == (api, [1], 200)
        [result] = reply.json()[member]
        assert (result["data"] if member == "outputs" else [result]) == [5]
        assert reply.headers["x-batch-size"] == "1"


# Metadata


def told(reply: httpx.Response, status: int = 200) -> Any:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


def tensor_info(name: str, dtype: str, *lengths: int) -> dict[str, Any]:
    """Return a tensor as TensorFlow Serving describes it, with lengths as strings."""
    dims = [{"size": str(length), "name": ""} for length in lengths]
    return {"name": name, "dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": False}}


OPENAI = {"object": "model", "created": 0, "owned_by": "uncork"}


async def test_models_are_ready_with_the_first_worker(on: GatewayStage) -> None:
    """Live at once, known after the first Hello, ready while a worker is."""
    paths = [
        "/v1/models/fake",
        "/v2/models/fake/ready",
        "/v2/models/fake/versions/1/ready",
        "/v2/health/ready",
    ]

    async def check(on: GatewayStage, *, known: bool, ready: bool) -> None:
        status = 200 if ready else 503
        for path in paths:
            reply = await on.http.get(path)
            if known or path == "/v2/health/ready":
                assert told(reply, status)["ready"] == ready
            else:
                assert error(reply, 503) == "no worker is ready: workers are starting"
                assert reply.headers["retry-after"] == "1"
        assert told(await on.http.get("/v2/health/live")) == {"live": True}

    await check(on, known=False, ready=False)
    (await on.connect()).send(Hello(index=0, launch=1, service=service()))
    await on.service.events.described
    await check(on, known=True, ready=False)
    worker = await on.worker(index=1)
    await check(on, known=True, ready=True)
    worker.close()
    while (await on.http.get("/readyz")).status_code == 200:
        pass
    await check(on, known=True, ready=False)


async def test_the_state_of_a_model_has_the_members_of_all_protocols(on: GatewayStage) -> None:
    """KServe's, TensorFlow Serving's, and those by which OpenAI's client finds models."""
    await on.worker()
    ok = {"error_code": "OK", "error_message": ""}
    version = {"version": "1", "state": "AVAILABLE", "status": ok}
    state = {"name": "fake", "ready": True, "model_version_status": [version], **OPENAI, "id": "fake"}
    for path in ("/v1/models/fake", "/v1/models/fake/versions/1"):
        assert told(await on.http.get(path)) == state
    listed = told(await on.http.get("/v1/models"))
    names = ["fake", "fake.echo"]
    assert (listed["models"], listed["object"]) == (names, "list")
    assert listed["data"] == [{**OPENAI, "id": name} for name in names]


@pytest.mark.parametrize(
    ("api", "datatype", "dtype", "shape"),
    [
        (json_api(), "BYTES", "DT_STRING", [-1]),
        (array_api(), "FP32", "DT_FLOAT", [-1, 4]),
        (array_api(dtype="uint8", shape=(None, 3)), "UINT8", "DT_UINT8", [-1, -1, 3]),
        (array_api(dtype="bool", shape=()), "BOOL", "DT_BOOL", [-1]),
        (array_api(dtype="float128", shape=()), "FP64", "DT_DOUBLE", [-1]),
    ],
)
async def test_metadata_says_what_a_model_takes(
    on: GatewayStage, api: ApiDescription, datatype: str, dtype: str, shape: list[int]
) -> None:
    await on.worker(serves=service(api))
    for path in ("/v2/models/fake.echo", "/v2/models/fake.echo/versions/1"):
        assert told(await on.http.get(path)) == {
            "name": "fake.echo",
            "versions": ["1"],
            "platform": "uncork",
            "inputs": [{"name": "input-0", "datatype": datatype, "shape": shape}],
            "outputs": [],
        }
    for path in ("/v1/models/fake/metadata", "/v1/models/fake/versions/1/metadata"):
        page = told(await on.http.get(path))
        assert page["model_spec"] == {"name": "fake", "signature_name": "", "version": "1"}
        signature = page["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        assert signature["inputs"] == {"input-0": tensor_info("input-0", dtype, *shape)}


async def outputs_told(on: GatewayStage, model: str) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = told(await on.http.get(f"/v2/models/{model}"))["outputs"]
    return outputs


async def infer(on: GatewayStage, worker: FakeWorker, answer: bytes, *, rows: int = 1) -> None:
    tensor = {"name": "x", "shape": [rows], "datatype": "INT64", "data": [1] * rows}
    asking = on.post("/v2/models/fake/infer", {"inputs": [tensor]})
    batch, _ = await worker.batch()
    worker.answer(batch, [answer])
    assert (await asking).status_code == 200


async def test_metadata_says_what_the_first_answer_had(on: GatewayStage) -> None:
    """Answers in any protocol count, unless they have no results."""
    worker = await on.worker()
    assert await outputs_told(on, "fake") == []
    asking = on.post("/echo", 5)
    batch, _ = await worker.batch()
    worker.answer(batch, [b"7"], statuses=[422])
    assert (await asking).status_code == 422
    assert await outputs_told(on, "fake") == []

    asking = on.post("/echo", 5)
    batch, _ = await worker.batch()
    worker.answer(batch, [b"[1.5,2.5]"], forms=[ListForm("FP32", (2,))])
    assert (await asking).json() == [1.5, 2.5]

    output = {"name": "output-0", "datatype": "FP32", "shape": [-1, 2]}
    assert await outputs_told(on, "fake") == await outputs_told(on, "fake.echo") == [output]
    page = told(await on.http.get("/v1/models/fake/metadata"))
    signature = page["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["outputs"] == {"output-0": tensor_info("output-0", "DT_FLOAT", -1, 2)}


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (RowResult(form=ListForm("FP16", (3, 4))), [("output-0", "FP16", [-1, 3, 4])]),
        (RowResult(form=ListForm("BYTES", ())), [("output-0", "BYTES", [-1])]),
        (RowResult(body=b'{"a":[1.5,2],"b":"text"}'), [("a", "FP64", [-1, 2]), ("b", "BYTES", [-1])]),
        (RowResult(body=b"[1,[2]]"), [("output-0", "BYTES", [-1])]),
        (RowResult(body=b"{"), []),
    ],
)
async def test_metadata_knows_what_a_warm_up_returned(
    on: GatewayStage, result: RowResult, outputs: list[tuple[str, str, list[int]]]
) -> None:
    """The warm-up's result counts before the first request, unless it is not JSON."""
    expected = [{"name": name, "datatype": datatype, "shape": shape} for name, datatype, shape in outputs]

    worker = await on.connect()
    worker.send(Hello(index=0, launch=1, service=service()))
    worker.send(Ready(results={"echo": result, "other": result}))
    await on.gateway.front_end.ready.wait()

    assert await outputs_told(on, "fake") == expected


async def test_metadata_holds_for_every_v2_answer_so_far(on: GatewayStage) -> None:
    """Varying lengths are -1; outputs that are missing or change are dropped. Names need two results."""
    worker = await on.worker()
    await infer(on, worker, b'{"ids":[5,6],"score":0.5,"label":"a"}')
    assert await outputs_told(on, "fake") == []
    await infer(
        on,
        worker,
        b'{"ids":[1,2],"score":0.5,"label":"a"},{"ids":[3,4],"score":1.5,"label":"b"}',
        rows=2,
    )
    ids = {"name": "ids", "datatype": "INT64", "shape": [-1, 2]}
    score = {"name": "score", "datatype": "FP64", "shape": [-1]}
    label = {"name": "label", "datatype": "BYTES", "shape": [-1]}
    assert await outputs_told(on, "fake") == [ids, score, label]
    await infer(on, worker, b'{"ids":[1,2,3],"score":1,"label":"c"}')
    assert await outputs_told(on, "fake") == [{**ids, "shape": [-1, -1]}, label]
    await infer(on, worker, b'{"ids":[1,2],"score":0.5}')
    assert await outputs_told(on, "fake") == [{**ids, "shape": [-1, -1]}]
    await infer(on, worker, b'{"ids":[[1,2]]}')
    assert await outputs_told(on, "fake") == []


STRUCT = {
    "$ref": "#/$defs/Row",
    "$defs": {
        "Row": {
            "type": "object",
            "properties": {
                "ids": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
                "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                "ok": {"type": "boolean"},
                "text": {"type": ["string", "null"]},
            },
        },
    },
}


@pytest.mark.parametrize(
    ("kind", "schema", "inputs"),
    [
        (
            "json",
            STRUCT,
            [
                ("ids", "INT64", [-1, 3]),
                ("grid", "FP64", [-1, -1, -1]),
                ("ok", "BOOL", [-1]),
                ("text", "BYTES", [-1]),
            ],
        ),
        ("json", {}, [("input-0", "BYTES", [-1])]),
        ("json", {"type": "integer"}, [("input-0", "INT64", [-1])]),
        ("json", {"type": "array", "items": {"type": "number"}}, [("input-0", "FP64", [-1, -1])]),
        ("text", {"type": "string"}, [("input-0", "BYTES", [-1])]),
        ("json", {"type": "object", "properties": {"a": {"type": "integer"}}}, [("a", "INT64", [-1])]),
        # Literals and enumerations, as msgspec describes them, without a type.
        (
            "json",
            {
                "type": "object",
                "properties": {"color": {"$ref": "#/$defs/Color"}, "level": {"enum": [1, 2, None]}},
                "$defs": {"Color": {"title": "Color", "enum": ["blue", "red"]}},
            },
            [("color", "BYTES", [-1]), ("level", "INT64", [-1])],
        ),
        ("json", {"enum": ["a", 1]}, []),
        ("json", {"enum": [1, 2.5], "type": "number"}, [("input-0", "FP64", [-1])]),
        # Nested objects are no tensors.
        ("json", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "object"}}}, []),
        ("json", {"type": "array", "prefixItems": [{"type": "integer"}]}, []),
        # A tuple, as msgspec describes it.
        ("json", {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, []),
        ("json", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, []),
        (
            "json",
            {"$ref": "#/$defs/T", "$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}}},
            [],
        ),
    ],
)
async def test_inputs_are_those_of_the_rows(
    on: GatewayStage, kind: str, schema: dict[str, Any], inputs: list[tuple[str, str, list[int]]]
) -> None:
    """Objects have a tensor for each field; rows that tensors cannot express have none."""
    api = ApiDescription(name="echo", route="/echo", input={"kind": kind}, schema=schema)

    await on.worker(serves=service(api))
    assert told(await on.http.get("/v2/models/fake"))["inputs"] == [
        {"name": name, "datatype": datatype, "shape": shape} for name, datatype, shape in inputs
    ]


async def test_a_model_that_no_tensor_reaches_has_no_inputs(on: GatewayStage) -> None:
    api = ApiDescription(name="echo", route="/echo", input={"kind": "raw", "accepts": ["image/*"]})

    await on.worker(serves=service(api))
    assert told(await on.http.get("/v2/models/fake"))["inputs"] == []


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
async def test_the_server_says_what_it_is(on: GatewayStage, path: str) -> None:
    page = told(await on.http.get(path, follow_redirects=True))

    assert page["name"] == "uncork"
    assert page["version"]
    assert page["extensions"] == [
        "binary_tensor_data",
        "model_configuration",
        "model_repository",
        "statistics",
    ]


# Errors


async def test_an_unknown_model_is_404(on: GatewayStage) -> None:
    await on.worker(serves=one_of_two())
    for path in (
        "/v1/models/pair",
        "/v2/models/pair",
        "/v2/models/pair/ready",
        "/v1/models/x/metadata",
    ):
        name = path.split("/")[3]
        message = error(await on.http.get(path), 404)
        near = "; did you mean pair.two?" if name == "pair" else ""
        unknown = f"Request for unknown model: {name!r} is not found"
        assert message == f"{unknown}; available models: pair.one, pair.two{near}"
    no_version = "model 'pair.one' has no version '2'; send '1', or no version"
    for path, says in (
        ("/v1/models/pair:predict", "Request for unknown model: 'pair' is not found; available"),
        ("/v1/models/pair.one/versions/2:predict", no_version),
        ("/v2/models/pair/infer", "Request for unknown model: 'pair' is not found; available"),
        ("/v2/models/pair.one/versions/2/infer", no_version),
        ("/v2/models/PAIR.ONE/infer", "Request for unknown model: 'PAIR.ONE' is not found; available"),
        (
            "/v1/models/pair.one:explain",
            ":explain needs an explainer, which Uncork does not have; POST to",
        ),
        ("/v1/models/pair.one:classify", ":classify takes examples with named features, which Uncork"),
        ("/v1/models/pair.one/versions/1:regress", ":regress takes examples with named features, which"),
        ("/v2/models/pair.one/generate", "/generate is for models that generate text, which Uncork"),
        ("/v2/systemsharedmemory/region/x/register", "shared memory is not supported; send tensors in"),
        ("/v2/cudasharedmemory/unregister", "shared memory is not supported; send tensors in the body"),
        ("/v2/trace/setting", "trace settings cannot be read or changed over HTTP; start the server"),
        ("/v2/models/pair.one/trace/setting", "trace settings cannot be read or changed over HTTP"),
        ("/v2/logging", "log settings cannot be read or changed over HTTP; start the server with"),
        (
            "/v2/models/pair.one/inference",
            "no route for /v2/models/pair.one/inference; did you mean POST",
        ),
    ):
        assert error(await on.http.post(path, json={}), 404).startswith(says), path
    assert error(await on.http.get("/v2/models/pair.one/versions/2"), 404)


async def test_a_wrong_method_is_405(on: GatewayStage) -> None:
    await on.worker()
    for path in (
        "/v1/models/fake:predict",
        "/v2/models/fake/infer",
        "/v1/models/fake/versions/1:predict",
    ):
        for method in ("GET", "PUT", "DELETE"):
            reply = await on.http.request(method, path)
            assert error(reply, 405) == f"{method} is not allowed for {path}; use POST"
            assert reply.headers["allow"] == "POST"
    for path in ("/v2/models/fake", "/v1/models/fake", "/v2", "/v2/health/ready"):
        reply = await on.http.put(path)
        assert error(reply, 405)
        assert set(reply.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/v1/models/fake:predict", "/v2/models/fake/infer"])
async def test_without_a_worker_it_is_503(on: GatewayStage, path: str) -> None:
    """Clients get 503 with Retry-After before the first Hello and before a worker is ready."""
    body = {"instances": [1], "inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}
    body.pop("inputs" if path.startswith("/v1") else "instances")

    early = await on.http.post(path, json=body)
    assert error(early, 503) == "no worker is ready: workers are starting"
    assert early.headers["retry-after"] == "1"
    (await on.connect()).send(Hello(index=0, launch=1, service=service()))
    await on.service.events.described
    later = await on.http.post(path, json=body)
    assert error(later, 503) == "no worker is ready"
    assert later.headers["retry-after"] == "1"
