"""The services over a socket, called by a client of grpcio."""

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

from tests.gateway.grpc.services.services_stage import ServicesStage, services
from tests.gateway.running import turns
from tests.markdown_pages import DOCS, blocks
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.methods import open_calls

PAGE = DOCS / "reference/grpc.md"


@contextlib.asynccontextmanager
async def served(on: ServicesStage) -> AsyncIterator[str]:
    """The services on a port; yields its address."""
    open_call = open_calls(on.methods, not_supported={}, keys=lambda: None)
    context = on.on.gateway.front_end.listener
    listener = GrpcListener(open_call, context, limits=GrpcLimits(max_message_bytes=2**20))
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
