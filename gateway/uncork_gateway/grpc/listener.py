"""The gRPC listener."""

import asyncio
import math
import socket
import ssl

from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.grpc.http2.connection import GrpcConnection
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.http2.windows import Starved
from uncork_gateway.grpc.interfaces import OpenCall

# As uvicorn's over HTTP. Proxies such as nginx open a connection for each call, hundreds at once; with
# asyncio's 100, the kernel resets some of them.
_BACKLOG = 2048
_HTTP_TEXT = "this port speaks gRPC (HTTP/2) only\n"


class GrpcListener:
    """Accepts connections on a socket, and opens a call for each stream.

    Args:
        context: the state shared with the HTTP listener; while ``closing``, new connections and streams are
            refused.
        http_text: the response text for HTTP/1.1 clients, which should name the HTTP port.
    """

    def __init__(
        self,
        open_call: OpenCall,
        context: ListenerContext,
        *,
        limits: GrpcLimits,
        http_text: str = _HTTP_TEXT,
    ) -> None:
        self._open_call = open_call
        self._context = context
        self._limits = limits
        self._http_text = http_text
        self._connections: set[GrpcConnection] = set()
        self._lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._starved = Starved(context.pool, self._loop)
        self._server: asyncio.Server | None = None
        self._exiting = asyncio.Event()
        self._is_forced = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    def protocol(self) -> GrpcConnection:
        """Create a connection; the protocol factory for asyncio."""
        return GrpcConnection(
            self._open_call,
            self._context,
            self._limits,
            connections=self._connections,
            lost=self._lost,
            starved=self._starved,
            http_text=self._http_text,
            loop=self._loop,
        )

    async def start(self, listener: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket, with TLS if ``tls`` is given, which must offer HTTP/2."""
        self._server = await self._loop.create_server(
            self.protocol,
            sock=listener,
            ssl=tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if tls is None else self._context.limits.head_timeout_s,
        )

    async def serve(self, listener: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections until :meth:`exit`; return when all have ended, or on :meth:`force_exit`."""
        await self.start(listener, tls=tls)
        await self._exiting.wait()
        await self.drained()
        self.close()

    def change(self, *, max_message_bytes: int, max_connection_age_s: float | None) -> None:
        """Change the limits. Connections that are already open keep their maximum age."""
        self._limits.limit_messages(max_message_bytes)
        self._limits.max_connection_age_s = math.inf if max_connection_age_s is None else max_connection_age_s

    def retire(self) -> None:
        """Refuse new streams on the open connections; each closes when its calls have ended."""
        for connection in list(self._connections):
            connection.drain()

    def drain(self) -> None:
        if self._server is not None:
            self._server.close()
        self.retire()

    def exit(self) -> None:
        """Let :meth:`serve` return when all connections have ended."""
        self.drain()
        self._exiting.set()

    def force_exit(self) -> None:
        """Let :meth:`serve` return without waiting for connections."""
        self._is_forced = True
        self._lost.set()

    async def drained(self) -> None:
        """Wait until all connections have ended, or for :meth:`force_exit`."""
        while self._connections and not self._is_forced:
            self._lost.clear()
            await self._lost.wait()

    def close(self) -> None:
        """Stop accepting, cancel all calls, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
