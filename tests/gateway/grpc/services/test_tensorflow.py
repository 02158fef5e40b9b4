"""The calls of TensorFlow Serving about models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from tests.gateway.fake_worker import service
from tests.gateway.grpc.services.services_stage import MODEL, PREDICTION, services
from tests.gateway.grpc.services.test_inference import arrays
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.statuses import Code
from uncork_workers.wire.messages import Hello

FIELD = "signature_def"


async def test_the_signature_is_that_of_http(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        await arrays(on)
        spec = {"name": "fake", "version": {"value": 1}}
        answer = on.ask(f"{PREDICTION}GetModelMetadata", model_spec=spec, metadata_field=[FIELD])
        page = (await on.on.http.get("/v1/models/fake/metadata")).json()

        assert answer.model_spec.name == "fake"
        assert answer.model_spec.version.value == 1
        signatures = message("tensorflow.serving.SignatureDefMap")()
        assert answer.metadata[FIELD].Unpack(signatures)
        assert signatures == ParseDict(page["metadata"][FIELD], type(signatures)())
        signature = signatures.signature_def["serving_default"]
        assert [one.size for one in signature.outputs["output-0"].tensor_shape.dim] == [-1, 3]


@pytest.mark.parametrize(
    ("fields", "sent"),
    [([], "nothing"), (["graph"], "'graph'"), ([FIELD, "graph"], "'signature_def', 'graph'")],
)
async def test_other_fields_of_metadata_are_invalid(tmp_path: Path, fields: list[str], sent: str) -> None:
    async with services(tmp_path) as on:
        await on.on.worker()
        text = on.refusal(
            f"{PREDICTION}GetModelMetadata",
            Code.INVALID_ARGUMENT,
            model_spec={"name": "fake"},
            metadata_field=fields,
        )
        assert text == f"metadata_field must be ['signature_def'], not {sent}"


async def test_the_status_follows_the_workers(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        (await on.on.connect()).send(Hello(index=0, launch=1, service=service()))
        await on.on.service.events.described
        asked = {"model_spec": {"name": "fake"}}
        [loading] = on.ask(f"{MODEL}GetModelStatus", **asked).model_version_status
        await on.on.worker(index=1)
        answer = on.ask(f"{MODEL}GetModelStatus", **asked)

        states = loading.State
        assert loading.state == states.LOADING
        [available] = answer.model_version_status
        assert (available.version, available.state) == (1, states.AVAILABLE)
        page = (await on.on.http.get("/v1/models/fake")).json()
        statuses = {"model_version_status": page["model_version_status"]}
        assert answer == ParseDict(statuses, type(answer)())


async def test_version_0_is_any(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        await on.on.worker()
        [state] = on.ask(
            f"{MODEL}GetModelStatus", model_spec={"name": "fake", "version": {"value": 0}}
        ).model_version_status
        assert state.version == 1


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"name": "fke"}, "did you mean fake?"),
        ({"name": "fake", "version": {"value": 2}}, "model 'fake' has no version '2'"),
        ({"name": "fake", "version": {"value": -1}}, "model 'fake' has no version '-1'"),
        ({"name": "fake", "version_label": "stable"}, "model 'fake' has no version label 'stable'"),
        ({"name": "fke", "version_label": "stable"}, "did you mean fake?"),
    ],
)
async def test_an_unknown_model_is_not_found(tmp_path: Path, spec: dict[str, Any], says: str) -> None:
    async with services(tmp_path) as on:
        path, status = f"{PREDICTION}GetModelMetadata", f"{MODEL}GetModelStatus"
        assert "no worker is ready" in on.refusal(status, Code.UNAVAILABLE, model_spec=spec)
        await on.on.worker()
        assert says in on.refusal(path, Code.NOT_FOUND, model_spec=spec, metadata_field=[FIELD])
        assert says in on.refusal(status, Code.NOT_FOUND, model_spec=spec)
