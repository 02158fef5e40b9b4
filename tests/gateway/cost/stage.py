"""A gateway with APIs of every kind, and the cost of input to it.

Clients are in this process, without sockets. A worker never replies, so admitted requests stay queued.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import uvicorn

from tests.gateway.cost.budget import HEAD_BYTES_OF_PIECE, Bytecodes
from tests.gateway.cost.http_inputs import INPUTS, Input
from tests.gateway.fake_worker import array_api, json_api, service
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.connection import decompression
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import Hello, Ready
from uncork_workers.wire.schema import ApiDescription, ApiSettings

_SETTINGS = ApiSettings(policy="fixed:0", mb_max_batch_size=32, mb_max_latency=1e6, timeout=1e6)
_APIS = (
    json_api("json", _SETTINGS),
    json_api("weighed", ApiSettings(policy="fixed:0", mb_max_latency=1e6, timeout=1e6, cost="bytes")),
    ApiDescription(name="bulk", route="/bulk", input={"kind": "json"}, classes={"fast": 1e6, "bulk": None}),
    array_api("array", shape=(None,), policy="fixed:0", mb_max_latency=1e6, timeout=1e6),
    *[
        ApiDescription(name=name, route=f"/{name}", input=takes, settings=_SETTINGS, **more)
        for name, takes, more in (
            ("table", {"kind": "dataframe", "columns": None}, {}),
            ("raw", {"kind": "raw", "accepts": ["*"]}, {"headers": ("x-a",)}),
            ("embed", {"kind": "text"}, {"task": "embeddings"}),
            ("rank", {"kind": "json"}, {"task": "rerank"}),
            ("grouped", {"kind": "json"}, {"group_by": "g"}),
            ("same", {"kind": "json"}, {"coalesce": True}),
        )
    ],
)
# Turns of the loop in which tasks of the gateway get to their end.
_TURNS = 40
_MOST_TURNS = 3000


class Cost(NamedTuple):
    """The cost of some input.

    Attributes:
        size: the bytes of the input that the gateway has read, as the budget counts them.
        bytecodes: the instructions of Python's virtual machine.
        peak: the most bytes of memory at a time.
        held: the bytes of memory while the connection stays open.
        kept: the bytes of memory once it has closed.
    """

    size: int
    bytecodes: int
    peak: int
    held: int
    kept: int


class Client(asyncio.Transport):
    """The client's end of a connection. It reads everything, and sends while the gateway reads."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self._reading = True
        self._closed = False
        self._protocol = protocol
        protocol.connection_made(self)

    async def send(self, pieces: Sequence[bytes]) -> Sequence[bytes]:
        """Send pieces until the gateway has ended, or reads no more; return those that it has read."""
        for number, piece in enumerate(pieces):
            if not await self._is_read():
                return pieces[:number]
            self._protocol.data_received(piece)
        await self._is_read()
        await _turns()
        return pieces

    async def _is_read(self) -> bool:
        """Wait until the gateway reads, for some turns of the loop; return whether it does."""
        for _ in range(_MOST_TURNS):
            if self._reading or self._closed:
                break
            await asyncio.sleep(0)
        return self._reading and not self._closed

    def leave(self) -> None:
        self._closed = True
        self._protocol.connection_lost(None)

    # The server's end

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None: ...
    def writelines(self, pieces: Any) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def close(self) -> None:
        self._closed = True

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Stage:
    """A gateway whose clients' costs are counted."""

    def __init__(self, http: Callable[[], Any], grpc: Callable[[], Any]) -> None:
        self._protocols = {"http": http, "grpc": grpc}

    async def cost(self, protocol: str, sent: Input) -> Cost:
        """Send some input on a connection of its own, and return its cost."""
        client = Client(self._protocols[protocol]())
        await client.send([sent.before] if sent.before else [])
        pieces = sent.pieces
        gc.collect()
        tracemalloc.start()
        with Bytecodes() as counted:
            read = await client.send(pieces)
        await _rest()
        held, peak = tracemalloc.get_traced_memory()
        client.leave()
        await _rest()
        del client
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        size = sum(map(len, read)) + HEAD_BYTES_OF_PIECE * len(read) + sent.inflated
        return Cost(size, counted.bytecodes, peak, held, kept)


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Run a gateway with a worker that never replies."""
    settings = GatewaySettings(grpc=True, dashboard=False)
    gateway = Gateway(settings)
    served = gateway.add(settings, SupervisorActions(kill=lambda launch: None, restarts=lambda: 0))
    ours, theirs = socket.socketpair()
    await served.pool.attach(ours)
    theirs.sendall(encode_frame(Hello(index=0, launch=1, service=service(*_APIS))) + encode_frame(Ready()))
    await served.batching.ready.wait()
    front = gateway.front_end
    config = uvicorn.Config(front.app, lifespan="off", log_config=None)
    config.load()
    state = uvicorn.Server(config).server_state
    assert front.open_call is not None
    listener = GrpcListener(
        front.open_call, front.listener, limits=GrpcLimits(max_message_bytes=settings.max_body_bytes)
    )
    made = Stage(lambda: front.protocol(config=config, server_state=state, app_state={}), listener.protocol)
    # Collecting what the process has already would take longer than the inputs.
    gc.freeze()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decompression, "_inflaters", ThreadPoolExecutor(1))
            await made.cost("http", INPUTS["body"](1))
            yield made
    finally:
        gc.unfreeze()
        front.give_up()
        await gateway.close()
        theirs.close()
        await _turns()


async def _rest() -> None:
    """Wait for the thread that inflates large bodies."""
    await asyncio.get_running_loop().run_in_executor(decompression._inflaters, len, b"")
    await _turns()


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
