"""The HTTP servers of a process, one for each of its listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import uvicorn

from uncork.server.listeners import Listeners
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import HotRoutes
from uncork_gateway.connection.timeouts import BodyPool, ClientLimits

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than load balancers keep theirs, so that they close it."""


class Apps(Protocol):
    """What answers at the listeners."""

    app: Any
    admin_app: Any

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection of a client."""
        ...


class Servers:
    """One server for each door; they begin and end together."""

    def __init__(self, front: Apps, listeners: Listeners, *, drain_timeout_s: float) -> None:
        patience: dict[str, Any] = {"timeout_graceful_shutdown": max(1, round(drain_timeout_s))}
        public = _http_config(front.app, front.protocol, **patience, **listeners.tls)
        self._servers = [(_HttpServer(public), listeners.public)]
        if listeners.admin is not None:
            no_apis = HotRoutes(limits=ClientLimits(), pool=BodyPool.for_bodies(0))
            admin = _http_config(front.admin_app, partial(HttpProtocol, no_apis), **patience)
            self._servers.append((_HttpServer(admin), listeners.admin))

    async def serve(self) -> None:
        """Return when all have ended."""
        await asyncio.gather(*(server.serve([listener]) for server, listener in self._servers))

    def exit(self) -> None:
        """Have them end when their connections have."""
        for server, _ in self._servers:
            server.should_exit = True

    def force_exit(self) -> None:
        """Have them end at once, if they are to end."""
        for server, _ in self._servers:
            server.force_exit = True


def _http_config(app: Any, protocol: Callable[..., HttpProtocol], **others: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # uvicorn calls it, whatever it is
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
    """uvicorn, with the signals left to us: it would end the process by the signal instead of with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
