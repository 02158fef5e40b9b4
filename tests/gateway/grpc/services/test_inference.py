"""The calls of the Open Inference Protocol about the server and its models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.fake_worker import array_api, json_api, service
from tests.gateway.grpc.services.services_stage import INFERENCE, ServicesStage, response_of, services
from tests.gateway.running import turns
from uncork_gateway.grpc.service import NOT_SUPPORTED
from uncork_gateway.grpc.statuses import Code
from uncork_workers.wire.forms import ListForm
from uncork_workers.wire.messages import Hello, Ready, RowResult
from uncork_workers.wire.schema import ApiDescription

OF_MODELS = ("ModelMetadata", "ModelConfig", "ModelStatistics")


async def arrays(on: ServicesStage) -> None:
    """Connect a worker whose warm-up returned arrays."""
    worker = await on.on.connect()
    worker.send(Hello(index=0, launch=1, service=service(array_api(policy="fixed:25:8"))))
    worker.send(Ready(results={"echo": RowResult(form=ListForm("FP64", (3,)))}))
    await on.on.gateway.front_end.ready.wait()


# Metadata


@pytest.mark.parametrize("name", ["fake", "fake.echo"])
async def test_models_are_described_as_over_http(tmp_path: Path, name: str) -> None:
    async with services(tmp_path) as on:
        await arrays(on)
        for version in ("", "1"):
            metadata = on.ask(f"{INFERENCE}ModelMetadata", name=name, version=version)
            config = on.ask(f"{INFERENCE}ModelConfig", name=name, version=version).config
            [stats] = on.ask(f"{INFERENCE}ModelStatistics", name=name, version=version).model_stats

            assert metadata == await on.page(f"/v2/models/{name}", type(metadata))
            assert config == await on.page(f"/v2/models/{name}/config", type(config))
            page = await on.page(f"/v2/models/{name}/stats", response_of(f"{INFERENCE}ModelStatistics"))
            assert [stats] == list(page.model_stats)
            assert [tensor.name for tensor in metadata.inputs] == ["input-0"]
            assert list(metadata.outputs[0].shape) == [-1, 3]
            assert list(config.dynamic_batching.preferred_batch_size) == [8]


@pytest.mark.parametrize("admin", [False, True])
async def test_the_server_names_the_same_extensions_as_over_http(tmp_path: Path, admin: bool) -> None:
    async with services(tmp_path, admin=admin) as on:
        await arrays(on)
        metadata = on.ask(f"{INFERENCE}ServerMetadata")

        assert metadata == await on.page("/v2", type(metadata))
        assert ("statistics" in metadata.extensions) is not admin


TOKENS = ApiDescription(name="tokens", route="/tokens", input={"kind": "json"}, streams=True)


@pytest.mark.parametrize(
    ("apis", "decoupled"),
    [
        ([TOKENS], {"fake": True, "fake.tokens": True}),
        ([TOKENS, json_api()], {"fake": False, "fake.echo": False, "fake.tokens": True}),
    ],
)
async def test_an_api_that_streams_is_decoupled(
    tmp_path: Path, apis: list[ApiDescription], decoupled: dict[str, bool]
) -> None:
    """If it is the only API, the name of the service means it."""
    async with services(tmp_path) as on:
        await on.on.worker(serves=service(*apis))
        configs = [on.ask(f"{INFERENCE}ModelConfig", name=name).config for name in decoupled]
        assert {one.name: one.model_transaction_policy.decoupled for one in configs} == decoupled


# Statistics


async def test_statistics_count_requests_of_all_protocols(tmp_path: Path) -> None:
    async with services(tmp_path, overrides={"policy": "fixed:0"}) as on:
        worker = await on.on.worker()
        await on.on.echo(worker, "/v1/models/fake:predict", {"instances": [1, 2, 3]})
        await on.on.echo(worker, "/echo", 1)

        both = on.ask(f"{INFERENCE}ModelStatistics")

        assert [stats.name for stats in both.model_stats] == ["fake", "fake.echo"]
        for stats in both.model_stats:
            assert (stats.inference_count, stats.execution_count) == (4, 2)
            assert stats.inference_stats.success.count == 2
            assert stats.inference_stats.compute_infer.ns > 0
            assert [batch.batch_size for batch in stats.batch_stats] == [1, 3]
        assert both == await on.page("/v2/models/stats", type(both))


async def test_statistics_are_not_for_clients_where_operators_have_a_port(tmp_path: Path) -> None:
    async with services(tmp_path, admin=True) as on:
        await on.on.worker()
        text = on.refusal(f"{INFERENCE}ModelStatistics", Code.UNIMPLEMENTED, name="fake")
        assert "statistics are on the admin port (--admin-port)" in text


# Readiness


async def test_models_are_ready_with_the_first_worker(tmp_path: Path) -> None:
    """Live at once; models are unavailable, not unknown, until a worker has described them."""
    async with services(tmp_path) as on:
        assert on.ask(f"{INFERENCE}ServerLive").live
        assert not on.ask(f"{INFERENCE}ServerReady").ready
        for method in OF_MODELS:
            text = on.refusal(f"{INFERENCE}{method}", Code.UNAVAILABLE, name="fake")
            assert text == "no worker is ready: workers are starting"
        assert not on.ask(f"{INFERENCE}ModelReady", name="fake").ready
        assert not on.ask(f"{INFERENCE}RepositoryIndex").models

        (await on.on.connect()).send(Hello(index=0, launch=1, service=service()))
        await on.on.service.events.described
        assert not on.ask(f"{INFERENCE}ModelReady", name="fake").ready
        assert on.ask(f"{INFERENCE}ModelMetadata", name="fake").name == "fake"

        worker = await on.on.worker(index=1)
        assert on.ask(f"{INFERENCE}ModelReady", name="fake").ready
        assert on.ask(f"{INFERENCE}ServerReady").ready
        worker.close()
        while on.ask(f"{INFERENCE}ServerReady").ready:
            await turns(1)
        assert not on.ask(f"{INFERENCE}ModelReady", name="fake").ready


@pytest.mark.parametrize("fields", [{"name": "fake.eho"}, {"name": "fake", "version": "2"}, {}])
async def test_an_unknown_model_is_not_ready(tmp_path: Path, fields: dict[str, str]) -> None:
    """As from Triton, whose clients poll this while they load and unload models."""
    async with services(tmp_path) as on:
        await on.on.worker()
        assert not on.ask(f"{INFERENCE}ModelReady", **fields).ready


@pytest.mark.parametrize("method", OF_MODELS)
async def test_an_unknown_model_is_not_found(tmp_path: Path, method: str) -> None:
    """The error names the available models, and the nearest."""
    async with services(tmp_path) as on:
        await on.on.worker()
        text = on.refusal(f"{INFERENCE}{method}", Code.NOT_FOUND, name="fake.eho")
        assert text == (
            "Request for unknown model: 'fake.eho' is not found; available models: fake, fake.echo; "
            "did you mean fake.echo?"
        )
        text = on.refusal(f"{INFERENCE}{method}", Code.NOT_FOUND, name="fake", version="2")
        assert text == "model 'fake' has no version '2'; send '1', or no version"


# Repository


async def test_the_index_lists_the_models(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        worker = await on.on.connect()
        worker.send(Hello(index=0, launch=1, service=service()))
        await on.on.service.events.described
        entries = on.ask(f"{INFERENCE}RepositoryIndex").models
        assert [(one.name, one.version, one.state) for one in entries] == [
            ("fake", "1", "UNAVAILABLE"),
            ("fake.echo", "1", "UNAVAILABLE"),
        ]
        assert all(one.reason.startswith("no worker is ready: ") for one in entries)
        assert not on.ask(f"{INFERENCE}RepositoryIndex", ready=True).models

        worker.send(Ready())
        await on.on.gateway.front_end.ready.wait()
        for ready in (False, True):
            entries = on.ask(f"{INFERENCE}RepositoryIndex", ready=ready).models
            assert [(one.name, one.state, one.reason) for one in entries] == [
                ("fake", "READY", ""),
                ("fake.echo", "READY", ""),
            ]


# The table


async def test_methods_that_are_not_supported_say_why(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        for path, text in NOT_SUPPORTED.items():
            _, stream = on.open(path.decode())
            assert (stream.code, stream.text) == (Code.UNIMPLEMENTED, text)
