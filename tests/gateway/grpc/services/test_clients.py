"""The services over a socket, called by the clients of other projects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.gateway.grpc.services.services_stage import ServicesStage, services
from tests.gateway.grpc.services.test_inference import arrays
from tests.gateway.running import turns
from tests.markdown_pages import DOCS, blocks
from uncork_gateway.auth import ApiKeys
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.messages import POOL, SERVICES, message
from uncork_gateway.grpc.methods import Methods
from uncork_gateway.grpc.service import NOT_SUPPORTED

PAGE = DOCS / "reference/grpc.md"
KEY = "0123456789abcdef"
Status = health_pb2.HealthCheckResponse


@contextlib.asynccontextmanager
async def served(on: ServicesStage, *, keys: ApiKeys | None = None) -> AsyncIterator[str]:
    """The services on a port; yields its address."""
    methods = Methods(
        on.methods,
        not_supported=NOT_SUPPORTED,
        keys=lambda: keys,
    )
    context = on.on.gateway.front_end.listener
    listener = GrpcListener(methods.open_call, context, limits=GrpcLimits(max_message_bytes=2**20))
    bound = socket.create_server(("127.0.0.1", 0))
    await listener.start(bound)
    try:
        yield f"127.0.0.1:{bound.getsockname()[1]}"
    finally:
        listener.close()
        while listener.connections:
            await turns(1)


@contextlib.contextmanager
def channel(address: str, **options: str) -> Iterator[grpc.Channel]:
    """A channel to an address; the names of options are without their prefix."""
    named = [(f"grpc.{name}", value) for name, value in options.items()]
    with grpc.insecure_channel(address, named) as opened:
        yield opened


def triton(address: str) -> Any:
    """Triton's client."""
    return pytest.importorskip("tritonclient.grpc").InferenceServerClient(address)


async def test_health_is_that_of_grpcio_s_client(tmp_path: Path) -> None:
    """Check, an unknown name, and a watch that hears of a worker and of its end."""
    async with services(tmp_path) as on, served(on) as address:
        watched: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def check(stub: Any, name: str) -> int:
            """Return the status of a name."""
            status: int = stub.Check(health_pb2.HealthCheckRequest(service=name)).status
            return status

        def watch(stub: Any) -> grpc.StatusCode:
            """Watch the server until the call ends; return how."""
            call = stub.Watch(health_pb2.HealthCheckRequest(service="fake"))
            with contextlib.suppress(grpc.RpcError):
                for response in call:
                    loop.call_soon_threadsafe(watched.put_nowait, response.status)
            code: grpc.StatusCode = call.code()
            return code

        with channel(address) as opened:
            stub = health_pb2_grpc.HealthStub(opened)
            watching = asyncio.create_task(asyncio.to_thread(watch, stub))
            assert await watched.get() == Status.SERVICE_UNKNOWN
            assert await asyncio.to_thread(check, stub, "") == Status.NOT_SERVING
            worker = await on.on.worker()
            assert await watched.get() == Status.SERVING
            for name in ("", "fake", "fake.echo", "inference.GRPCInferenceService"):
                assert await asyncio.to_thread(check, stub, name) == Status.SERVING
            with pytest.raises(grpc.RpcError) as caught:
                await asyncio.to_thread(check, stub, "fke")
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            worker.close()
            assert await watched.get() == Status.NOT_SERVING
            on.calls.close()
            assert await watching is grpc.StatusCode.UNAVAILABLE


async def test_reflection_is_that_of_grpcio_s_client(tmp_path: Path) -> None:
    def explore(address: str) -> None:
        """Build every service from the files that the server sends."""
        with channel(address) as opened:
            database = ProtoReflectionDescriptorDatabase(opened)
            pool = DescriptorPool(database)
            assert sorted(database.get_services()) == sorted(SERVICES)
            for service in SERVICES:
                methods = pool.FindServiceByName(service).methods_by_name
                assert methods.keys() == POOL.FindServiceByName(service).methods_by_name.keys()
            assert pool.FindFileByName("grpc_service.proto").dependencies[0].name == "model_config.proto"
            response = pool.FindMessageTypeByName("inference.ModelConfigResponse")
            config = response.fields_by_name["config"].message_type
            assert config is pool.FindMessageTypeByName("inference.ModelConfig")
            assert pool.FindMethodByName("inference.GRPCInferenceService.ModelInfer").name == "ModelInfer"
            assert list(database.FindAllExtensionNumbers("inference.ModelConfig")) == []
            for unknown in (database.FindFileByName, database.FindFileContainingSymbol):
                with pytest.raises(KeyError):
                    unknown("x")

    async with services(tmp_path) as on, served(on) as address:
        await asyncio.to_thread(explore, address)


async def test_metadata_is_that_of_triton_s_client(tmp_path: Path) -> None:
    """All calls of tritonclient that are not about a request's tensors."""

    def explore(address: str) -> None:
        """Look around as a client does before it sends requests."""
        with triton(address) as client:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("fake")
            assert client.is_model_ready("fake", "1")
            assert client.get_server_metadata().name == "uncork"
            metadata = client.get_model_metadata("fake", as_json=True)
            assert metadata["inputs"] == [{"name": "input-0", "datatype": "FP32", "shape": ["-1", "4"]}]
            assert metadata["outputs"] == [{"name": "output-0", "datatype": "FP64", "shape": ["-1", "3"]}]
            config = client.get_model_config("fake", as_json=True)["config"]
            assert config["input"] == [{"name": "input-0", "data_type": "TYPE_FP32", "dims": ["4"]}]
            assert config["max_batch_size"] == 1000
            assert config["dynamic_batching"]["preferred_batch_size"] == [8]
            names = [stats.name for stats in client.get_inference_statistics().model_stats]
            assert names == ["fake", "fake.echo"]
            [stats] = client.get_inference_statistics("fake").model_stats
            assert (stats.version, stats.inference_stats.success.count) == ("1", 0)
            index = client.get_model_repository_index().models
            assert [(one.name, one.state) for one in index] == [("fake", "READY"), ("fake.echo", "READY")]

    async with services(tmp_path) as on, served(on) as address:
        await arrays(on)
        await asyncio.to_thread(explore, address)


async def test_triton_s_client_learns_what_is_not_supported(tmp_path: Path) -> None:
    exceptions = pytest.importorskip("tritonclient.utils")

    def explore(address: str) -> list[tuple[str, str]]:
        """Return status and message of each call."""
        errors = []
        with triton(address) as client:
            for method, arguments in (
                ("get_system_shared_memory_status", []),
                ("get_trace_settings", []),
                ("get_log_settings", []),
                ("get_model_config", ["fke"]),
            ):
                with pytest.raises(exceptions.InferenceServerException) as caught:
                    getattr(client, method)(*arguments)
                errors.append((caught.value.status(), caught.value.message()))
        return errors

    async with services(tmp_path) as on, served(on) as address:
        await on.on.worker()
        *unsupported, unknown = await asyncio.to_thread(explore, address)

        assert {status for status, _ in unsupported} == {"StatusCode.UNIMPLEMENTED"}
        assert unsupported[0][1] == "shared memory is not supported; send tensors in the request"
        message = (
            "Request for unknown model: 'fke' is not found; available models: fake, fake.echo; "
            "did you mean fake?"
        )
        assert unknown == ("StatusCode.NOT_FOUND", message)


async def test_only_liveness_and_readiness_need_no_key(tmp_path: Path) -> None:
    def explore(address: str) -> None:
        """Call methods with a key and without."""
        key = [("x-api-key", KEY)]
        with triton(address) as client, channel(address) as opened:
            assert client.is_server_live()
            assert client.is_server_ready()
            health: Any = health_pb2_grpc.HealthStub(opened)
            assert health.Check(health_pb2.HealthCheckRequest()).status == Status.SERVING
            assert client.is_model_ready("fake", headers=dict(key))
            with pytest.raises(Exception, match="missing or unknown API key"):
                client.is_model_ready("fake")
            with pytest.raises(grpc.RpcError) as caught:
                ProtoReflectionDescriptorDatabase(opened).get_services()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    async with services(tmp_path) as on, served(on, keys=ApiKeys([KEY.encode()])) as address:
        await on.on.worker()
        await asyncio.to_thread(explore, address)


async def test_a_client_with_a_retry_policy_waits_for_the_first_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The policy is that of the page on gRPC; without the push-back the client would retry in 0.1 s."""
    [policy] = blocks(PAGE, "json")

    def metadata(address: str) -> Any:
        """Return the name of a model, as the server describes it."""
        with channel(address, service_config=policy.code) as opened:
            name = message("inference.ModelMetadataRequest")(name="fake")
            ask = opened.unary_unary(
                "/inference.GRPCInferenceService/ModelMetadata",
                request_serializer=type(name).SerializeToString,
                response_deserializer=message("inference.ModelMetadataResponse").FromString,
            )
            return ask(name)

    caplog.set_level(logging.INFO, "uncork.access")
    async with services(tmp_path, access_log=True) as on, served(on) as address:
        began = time.monotonic()
        asking = asyncio.create_task(asyncio.to_thread(metadata, address))
        while not caplog.messages:
            await turns(1)
        await on.on.worker()

        assert (await asking).name == "fake"
        assert time.monotonic() - began > 0.9
        assert [re.findall(r" (\d{3}) ", line) for line in caplog.messages] == [["503"], ["200"]]
