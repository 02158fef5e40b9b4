"""A whole proxy for gRPC servers: clients of grpcio, our port, the dispatcher, and servers of grpcio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from grpc import aio

from tests.gateway.grpc.proxy.fake_grpc_server import FakeGrpcServer, Script, fake_grpc_server
from tests.gateway.grpc.proxy.models import INFER, doubles, rows_of
from tests.gateway.running import turns
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings

# Settings that release requests together when the queue is long enough, or after a second.
TOGETHER: dict[str, Any] = {"policy": "fixed:1000", "max_hold_s": 1.0}
_LIMITS = GrpcLimits(max_message_bytes=16 * 2**20, max_unsent_bytes=16 * 2**20)


class Answer(NamedTuple):
    """The answer to a unary call."""

    code: Code
    text: str
    message: bytes
    metadata: dict[str, Any]
    trailers: dict[str, Any]

    @property
    def batch(self) -> tuple[str, int]:
        return self.trailers["x-batch-id"], int(self.trailers["x-batch-size"])


class ProxyStage:
    """A proxy and a client."""

    def __init__(self, proxy: Proxy, channel: aio.Channel) -> None:
        self.proxy = proxy
        self.channel = channel

    async def call(
        self, message: bytes, *metadata: tuple[str, str], path: str = INFER, timeout_s: float | None = None
    ) -> Answer:
        method: aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(path)
        call = method(message, metadata=metadata, timeout=timeout_s)
        try:
            answer = await call
        except aio.AioRpcError as error:
            code: int = error.code().value[0]
            initial, trailing = error.initial_metadata(), error.trailing_metadata()
            return Answer(Code(code), error.details() or "", b"", _dict(initial), _dict(trailing))
        return Answer(
            Code.OK, "", answer, _dict(await call.initial_metadata()), _dict(await call.trailing_metadata())
        )

    async def calls(self, *messages: bytes, path: str = INFER) -> list[Answer]:
        return await asyncio.gather(*[self.call(message, path=path) for message in messages])

    def queued(self) -> int:
        """Return how many rows wait for a call."""
        return sum(round(api.queued_rows) for api in self.proxy.front_end.services[0].dispatcher.stats())

    def requests(self, model: str, status: int) -> float | None:
        """Return how many requests for a model were counted with a status."""
        labels = {"api": model, "status": str(status), "protocol": "grpc"}
        registry = self.proxy.front_end.exposition.registry
        return registry.get_sample_value("uncork_requests_total", labels)


def _dict(metadata: Any) -> dict[str, Any]:
    return dict(iter(metadata or ()))


@contextlib.asynccontextmanager
async def grpc_proxy(*urls: str, healthy: bool = True, **settings: Any) -> AsyncIterator[ProxyStage]:
    """A proxy in front of servers, of which one is healthy before this returns, unless told otherwise."""
    proxy = Proxy(urls, ProxySettings(**{"policy": "fixed:0", "grpc": True, **settings}))
    front_end = proxy.front_end
    assert front_end.open_call is not None
    listener = GrpcListener(front_end.open_call, front_end.listener, limits=_LIMITS)
    server = await asyncio.get_running_loop().create_server(listener.protocol, "127.0.0.1", 0)
    proxy.start()
    port = server.sockets[0].getsockname()[1]
    options = (("grpc.use_local_subchannel_pool", 1),)
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            if healthy:
                await front_end.ready.wait()
            await channel.channel_ready()
            yield ProxyStage(proxy, channel)
    finally:
        server.close()
        listener.close()
        await proxy.close()
        await turns()


@contextlib.asynccontextmanager
async def merging(
    script: Script = doubles, **settings: Any
) -> AsyncIterator[tuple[ProxyStage, FakeGrpcServer]]:
    async with fake_grpc_server(script) as fake, grpc_proxy(fake.url, **settings) as on:
        yield on, fake


def sizes(fake: FakeGrpcServer) -> list[int]:
    return [rows_of(call) for call in fake.calls]
