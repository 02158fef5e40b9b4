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
from tests.gateway.running import turns
from tests.markdown_pages import DOCS, blocks
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.messages import POOL, SERVICES, message
from uncork_gateway.grpc.methods import Methods

PAGE = DOCS / "reference/grpc.md"
Status = health_pb2.HealthCheckResponse


@contextlib.asynccontextmanager
async def served(on: ServicesStage) -> AsyncIterator[str]:
    """The services on a port; yields its address."""
    methods = Methods(on.methods, not_supported={}, keys=lambda: None)
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
