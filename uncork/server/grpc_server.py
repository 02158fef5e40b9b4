"""The gRPC port of a process. Needs the packages of the extra ``grpc``."""

import asyncio
import math

from uncork.server.listeners import Listeners
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.listener import GrpcListener


class GrpcServer:
    """A server for gRPC, with the interface of uvicorn's.

    Make it inside a running event loop.
    """

    def __init__(self, front_end: FrontEnd, listeners: Listeners) -> None:
        assert listeners.grpc is not None
        assert front_end.open_call is not None
        max_bytes = front_end.settings.max_body_bytes
        self._limits = GrpcLimits(max_message_bytes=max_bytes)
        self._socket = listeners.grpc
        self._tls = None if listeners.grpc_tls is None else listeners.grpc_tls.context
        self._listener = GrpcListener(
            front_end.open_call,
            front_end.listener,
            limits=self._limits,
            http_text=f"this port speaks gRPC (HTTP/2) only; HTTP is served at {listeners.url}\n",
        )
        self._is_drained = asyncio.Event()
        self._is_forced = asyncio.Event()
        self.change(max_body_bytes=max_bytes, max_connection_age_s=listeners.grpc_max_connection_age_s)

    def change(self, *, max_body_bytes: int, max_connection_age_s: float | None) -> None:
        """Change the limits. Connections that are already open keep their maximum age."""
        limits = self._limits
        limits.limit_messages(max_body_bytes)
        limits.max_connection_age_s = math.inf if max_connection_age_s is None else max_connection_age_s

    async def serve(self) -> None:
        """Serve until :meth:`exit`, and then until all calls are answered or :meth:`force_exit`."""
        await self._listener.start(self._socket, tls=self._tls)
        await self._is_drained.wait()
        ends = [asyncio.create_task(each) for each in (self._listener.drained(), self._is_forced.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        self._listener.close()

    def retire(self) -> None:
        """Send clients elsewhere, but accept new connections."""
        self._listener.retire()

    def drain(self) -> None:
        """Send clients elsewhere: refuse new calls, and end each connection when its calls are answered."""
        self._listener.drain()

    def exit(self) -> None:
        """End when all connections have ended."""
        self._listener.drain()
        self._is_drained.set()

    def force_exit(self) -> None:
        """Do not wait for connections."""
        self._is_forced.set()
