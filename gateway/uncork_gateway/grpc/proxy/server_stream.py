"""A call to a gRPC server, message by message; a unary call is a stream of one message."""

from __future__ import annotations

import asyncio
import contextlib

from grpc import aio

from uncork_gateway.backends.model_servers.server import CallStatus
from uncork_gateway.grpc.proxy.metadata import from_metadata
from uncork_gateway.headers import Header

# What grpcio raises from a call that has ended: with an error, with OK, or by cancellation.
_ENDED = (aio.AioRpcError, asyncio.InvalidStateError)


class ServerStream:
    """A call to a server. Sending to a call that has ended does nothing; :meth:`status` reports the error."""

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self._call = call

    async def send(self, message: bytes) -> None:
        """Send a message; return when the server's flow control has accepted it."""
        with contextlib.suppress(*_ENDED):
            await self._call.write(message)

    async def end_sending(self) -> None:
        """Tell the server that there are no more messages."""
        with contextlib.suppress(*_ENDED):
            await self._call.done_writing()

    async def initial_metadata(self) -> tuple[Header, ...]:
        """Wait for the server's initial metadata; empty if the call ends without any."""
        return from_metadata(await self._call.initial_metadata())

    async def receive(self) -> bytes | None:
        """Wait for the next message; None after the last."""
        try:
            message = await self._call.read()
        except _ENDED:
            return None
        return message if isinstance(message, bytes) else None

    async def status(self) -> CallStatus:
        """Wait for the end of the call, and return its status."""
        code: int = (await self._call.code()).value[0]
        trailers = from_metadata(await self._call.trailing_metadata())
        return CallStatus(code, await self._call.details() or "", trailers)

    def cancel(self) -> None:
        self._call.cancel()
