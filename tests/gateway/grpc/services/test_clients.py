"""The services over a socket, called by a client of grpcio."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.gateway.grpc.services.services_stage import services
from tests.gateway.running import turns
from tests.markdown_pages import DOCS, blocks
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.messages import message


async def test_a_client_with_a_retry_policy_waits_for_the_first_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The policy is that of the page on gRPC."""
    [policy] = blocks(DOCS / "reference/grpc.md", "json")
    caplog.set_level(logging.INFO, "uncork.access")
    async with services(tmp_path, access_log=True) as on:
        front_end, limits = on.on.gateway.front_end, GrpcLimits(max_message_bytes=2**20)
        assert front_end.open_call is not None
        listener = GrpcListener(front_end.open_call, front_end.listener, limits=limits)
        bound = socket.create_server(("127.0.0.1", 0))
        await listener.start(bound)
        options = [("grpc.service_config", policy.code)]
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{bound.getsockname()[1]}", options)
        async with channel:
            request = message("inference.ModelMetadataRequest")(name="fake").SerializeToString()
            ask = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
            asking = asyncio.ensure_future(ask(request))
            while not caplog.messages:
                await turns(1)
            await on.on.worker()
            assert message("inference.ModelMetadataResponse").FromString(await asking).name == "fake"
            listener.drain()
        await listener.drained()

    assert [re.findall(r" (\d{3}) ", line) for line in caplog.messages] == [["503"], ["200"]]
