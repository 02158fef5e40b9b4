"""Servers that return the message of each call: the transports alone, without a dispatcher.

python -m benchmarks.costs.echo_servers TRANSPORT PORT
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import grpc
import uvicorn
import uvloop

from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.statuses import code_of
from uncork_gateway.interfaces import BodyPool
from uncork_loadtests.servers import HOST

HTTP, OWN, GRPC_AIO = "HTTP/1.1", "gRPC", "grpc.aio"
READY = "ready"
_MAX_BYTES = 64 * 2**20


class _EchoRequest:
    """A request of HTTP that is answered with its body."""

    def __init__(self, connection: Any, *, keep_alive: bool) -> None:
        self._connection = connection
        self.keep_alive = keep_alive
        self._pieces: list[bytes] = []

    def start(self) -> None:
        """There is nothing to wait for: h2load does not pipeline."""

    def body_received(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def body_complete(self) -> None:
        self.execute(b"".join(self._pieces))

    def execute(self, body: bytes) -> None:
        self._connection.reply(self, 200, b"content-type: application/octet-stream\r\n", body)

    def reject(self, error: GatewayError) -> None:
        raise error

    def disconnect(self) -> None:
        """There is nothing to cancel."""


class _EchoHandler:
    def read_head(self, headers: Any, target: bytes) -> None:
        return None

    def open(self, connection: Any, head: None, *, keep_alive: bool) -> _EchoRequest:
        return _EchoRequest(connection, keep_alive=keep_alive)


class _EchoCall:
    takes_one = True
    max_message_bytes = _MAX_BYTES

    def __init__(self, stream: CallStream, head: CallHead) -> None:
        self._stream = stream

    def message_received(self, message: bytes) -> None:
        self._stream.reply(message, ())

    def end_received(self) -> None:
        """Do nothing: the message has been answered."""

    def reject(self, error: GatewayError) -> None:
        self._stream.finish(code_of(error), str(error))

    def cancelled(self) -> None:
        """There is nothing to cancel."""


async def _serve_http(listener: socket.socket) -> None:
    config = uvicorn.Config(_no_app, lifespan="off", log_config=None, interface="asgi3")
    config.load()
    state = uvicorn.Server(config).server_state
    routes = RouteTable()
    routes.replace({b"/t.T/Echo": _EchoHandler()})
    context = ListenerContext(pool=BodyPool.for_bodies(_MAX_BYTES))
    protocol: Any = partial(HttpProtocol, routes, context, config=config, server_state=state, app_state={})
    await asyncio.get_running_loop().create_server(protocol, sock=listener)


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the load goes to the fast path")


async def _serve_grpc(listener: socket.socket) -> None:
    context = ListenerContext(pool=BodyPool.for_bodies(_MAX_BYTES))
    server = GrpcListener(_EchoCall, context, limits=GrpcLimits(max_message_bytes=_MAX_BYTES))
    await server.start(listener)


async def _serve_grpc_aio(listener: socket.socket) -> object:
    """Serve with grpcio, whose own socket replaces the given one."""
    port = listener.getsockname()[1]
    listener.close()
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])

    async def echo(message: bytes, _: Any) -> bytes:
        return message

    handler: Any = grpc.method_handlers_generic_handler(
        "t.T", {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    )
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    return server


SERVERS: dict[str, Callable[[socket.socket], Coroutine[Any, Any, object]]] = {
    HTTP: _serve_http,
    OWN: _serve_grpc,
    GRPC_AIO: _serve_grpc_aio,
}


async def _main(transport: str, port: int) -> None:
    server = await SERVERS[transport](socket.create_server((HOST, port)))
    print(READY, flush=True)
    await asyncio.Event().wait()
    del server  # grpcio stops a server that nobody refers to


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
