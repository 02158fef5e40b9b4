"""The servers on the listeners of a process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from uncork.server.credentials import Credentials
from uncork.server.listeners import Listeners
from uncork.server.server_options import ServerOptions
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.interfaces import BodyPool

if TYPE_CHECKING:
    from uncork_gateway.grpc.listener import GrpcListener

KEEP_ALIVE_S = 75
"""Longer than load balancers keep idle connections, so that they close them first."""


_FOR_OPERATORS = 8


class Servers:
    """One server for each listener; they start and end together."""

    def __init__(self, front_end: FrontEnd, listeners: Listeners) -> None:
        self._listeners = listeners
        self._clients = front_end.listener
        self._operators: ListenerContext | None = None
        tls = listeners.tls
        public = _http_config(
            front_end.app,
            front_end.protocol,
            ssl_context_factory=None if tls is None else lambda config, default: tls.context,
        )
        handshake_s = None if tls is None else front_end.listener.limits.head_timeout_s
        self._servers = [(_HttpServer(public, handshake_timeout_s=handshake_s), listeners.public)]
        if listeners.unix is not None:
            unix = _http_config(front_end.app, front_end.protocol)
            self._servers.append((_HttpServer(unix), listeners.unix))
        if listeners.admin is not None:
            # Of the files that are left for other purposes: operators must see what uses up the rest.
            self._operators = context = ListenerContext(
                limits=front_end.listener.limits,
                pool=BodyPool.for_bodies(0),
                open_connections=front_end.listener.open,
                reserve=_FOR_OPERATORS,
            )
            protocol = partial(HttpProtocol, RouteTable(), context)
            admin = _http_config(front_end.admin_app, protocol)
            self._servers.append((_HttpServer(admin), listeners.admin))
        self._grpc = None if listeners.grpc is None else _grpc_listener(front_end, listeners)

    async def serve(self) -> None:
        """Serve until all servers have ended."""
        serving = [server.serve([listener]) for server, listener in self._servers]
        if self._grpc is not None and self._listeners.grpc is not None:
            tls = self._listeners.grpc_tls
            serving.append(self._grpc.serve(self._listeners.grpc, tls=None if tls is None else tls.context))
        await asyncio.gather(*serving)

    def change(self, credentials: Credentials, options: ServerOptions) -> None:
        """Set other certificates, and other limits of gRPC clients and operators.

        The front end must have its new settings already.
        """
        self._listeners.renew(credentials)
        if self._operators is not None:
            self._operators.limits = self._clients.limits
        if self._grpc is not None:
            self._grpc.change(
                max_message_bytes=options.max_body_bytes,
                max_connection_age_s=options.grpc_max_connection_age,
            )

    def retire(self) -> None:
        """Send clients elsewhere, but accept new connections."""
        if self._grpc is not None:
            self._grpc.retire()

    def drain(self) -> None:
        """Send clients elsewhere: they get no new calls on their connections from now on."""
        if self._grpc is not None:
            self._grpc.drain()

    def exit(self, *, timeout_s: float) -> None:
        """End the servers when their connections have ended, or after a time."""
        for server, _ in self._servers:
            server.config.timeout_graceful_shutdown = max(1, round(timeout_s))
            server.should_exit = True
        if self._grpc is not None:
            self._grpc.exit()

    def force_exit(self) -> None:
        """Let the servers that are ending skip open connections."""
        for server, _ in self._servers:
            server.force_exit = True
        if self._grpc is not None:
            self._grpc.force_exit()


def _http_config(app: Any, protocol: Callable[..., HttpProtocol], **others: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # uvicorn calls it, whatever its type
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        **others,
    )


def _grpc_listener(front_end: FrontEnd, listeners: Listeners) -> GrpcListener:
    from uncork_gateway.grpc.http2.limits import GrpcLimits
    from uncork_gateway.grpc.listener import GrpcListener  # needs an extra

    assert front_end.open_call is not None
    max_bytes = front_end.settings.max_body_bytes
    made = GrpcListener(
        front_end.open_call,
        front_end.listener,
        limits=GrpcLimits(max_message_bytes=max_bytes),
        http_text=f"this port speaks gRPC (HTTP/2) only; HTTP is served at {listeners.url}\n",
    )
    made.change(max_message_bytes=max_bytes, max_connection_age_s=listeners.grpc_max_connection_age_s)
    return made


class _HttpServer(uvicorn.Server):
    """uvicorn with a limit on TLS handshakes, and without its signal handlers.

    These would end the process by the signal instead of with 0.
    """

    def __init__(self, config: uvicorn.Config, *, handshake_timeout_s: float | None = None) -> None:
        super().__init__(config)
        self._handshake_timeout_s = handshake_timeout_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections as uvicorn does, whose own method leaves a handshake a minute."""
        config, loop = self.config, asyncio.get_running_loop()
        make: Any = config.http_protocol_class
        accept = partial(make, config=config, server_state=self.server_state, app_state=self.lifespan.state)
        self.servers = [
            await loop.create_server(
                accept,
                sock=each,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=self._handshake_timeout_s,
            )
            for each in sockets or ()
        ]
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
