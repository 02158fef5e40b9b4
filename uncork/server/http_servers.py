"""uvicorn on the listeners of a process."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from uncork.server.listeners import Listeners
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.interfaces import BodyPool

KEEP_ALIVE_S = 75
"""Longer than load balancers keep idle connections, so that they close them first."""


class Servers:
    """One server for each listener; they start and end together."""

    def __init__(self, front_end: FrontEnd, listeners: Listeners, *, drain_timeout_s: float) -> None:
        graceful: dict[str, Any] = {"timeout_graceful_shutdown": max(1, round(drain_timeout_s))}
        public = _http_config(front_end.app, front_end.protocol, **graceful, **listeners.tls)
        self._servers = [(_HttpServer(public), listeners.public)]
        if listeners.admin is not None:
            protocol = partial(HttpProtocol, RouteTable(), ListenerContext(pool=BodyPool.for_bodies(0)))
            admin = _http_config(front_end.admin_app, protocol, **graceful)
            self._servers.append((_HttpServer(admin), listeners.admin))

    async def serve(self) -> None:
        """Serve until all servers have ended."""
        await asyncio.gather(*(server.serve([listener]) for server, listener in self._servers))

    def exit(self) -> None:
        """End the servers when their connections have ended."""
        for server, _ in self._servers:
            server.should_exit = True

    def force_exit(self) -> None:
        """Let the servers that are ending skip open connections."""
        for server, _ in self._servers:
            server.force_exit = True


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


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal instead of with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
