"""gRPC calls that the proxy relays one to one, message by message, without batching."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from grpc import aio

from uncork_gateway.backends.model_servers.server import ConnectionLost, NoAnswerInTime, ServerResponse
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.errors import BadGateway, GatewayError, TimedOut, draining, no_room
from uncork_gateway.grpc.interfaces import Call, CallHead, CallStream
from uncork_gateway.grpc.methods import PlainCall
from uncork_gateway.grpc.proxy.metadata import from_metadata
from uncork_gateway.grpc.proxy.server import GrpcServer, ServerStream, status_in
from uncork_gateway.grpc.statuses import Code, status_of
from uncork_gateway.headers import Header, with_request_id
from uncork_gateway.interfaces import SMALL_BODY_BYTES
from uncork_gateway.protocols.wire import Content

# What may wait on its way to a side that does not read; more is not read from the other.
_MOST_WAITING_BYTES = 256 * 1024
# Memory of a waiting message besides its bytes.
_MESSAGE_BYTES = 64
# What grpcio raises from a call that has ended: with an error, with OK, or by cancellation.
_ENDED = (aio.AioRpcError, asyncio.InvalidStateError)


class GrpcPassThrough:
    """Relays calls to one of several servers.

    Args:
        timeout_s: the longest time without a byte from a server in :meth:`relay`; other calls have only their
            client's time.
    """

    def __init__(self, servers: Servers[GrpcServer], listener: ListenerContext, *, timeout_s: float) -> None:
        self._servers = servers
        self._listener = listener
        self.change(timeout_s=timeout_s)
        self._calls: set[PassThroughCall] = set()

    def change(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def open(self, stream: CallStream, head: CallHead) -> Call:
        """Relay a call of any kind."""
        call = PassThroughCall(stream, head, self._calls)
        try:
            server = self._server()
            metadata = with_request_id(head.metadata, stream.request_id)
            call.start(server.stream(head.path.decode("latin-1"), metadata, timeout_s=head.timeout_s))
        except GatewayError as error:
            call.reject(error)
        return call

    async def relay(
        self, path: bytes, metadata: tuple[Header, ...], message: bytes, *, time_left_s: float
    ) -> ServerResponse:
        """Relay a unary call whose message is complete; return the complete response.

        Raises:
            GatewayError: if the server did not respond, or too many large messages are being relayed.
        """
        server, content = self._server(), Content(message, metadata)
        try:
            with self._listener.pool.holding(len(message)):
                return await server.exchange(
                    path,
                    content,
                    silence_s=self._timeout_s,
                    time_left_s=time_left_s,
                    idempotent=self._servers.idempotent,
                )
        except NoAnswerInTime as error:
            raise TimedOut(f"the server did not respond before the timeout: {error}") from error
        except ConnectionLost as error:
            raise BadGateway(f"the server did not respond: {error}") from error

    async def close(self) -> None:
        """End all calls, before the connections to the servers close."""
        calls = list(self._calls)
        for call in calls:
            call.reject(draining())
        await asyncio.gather(*[call.ended() for call in calls])

    def _server(self) -> GrpcServer:
        if self._listener.closing:
            raise draining()
        return self._servers.for_one_request()


class PassThroughCall(PlainCall):
    """One relayed call. Each side is read only as fast as the other accepts messages."""

    max_message_bytes = sys.maxsize

    def __init__(self, stream: CallStream, head: CallHead, calls: set[PassThroughCall]) -> None:
        super().__init__(stream, head)
        self._calls = calls
        self._task: asyncio.Task[None] | None = None
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        """The messages on their way to the server; None marks the end."""
        self._waiting_bytes = 0

    def start(self, server: ServerStream) -> None:
        """Relay messages to and from a server's call until either side ends it."""

        def over(_: object) -> None:
            server.cancel()
            self._calls.discard(self)

        self._calls.add(self)
        self._task = asyncio.create_task(self._relay(server))
        # Not in the task: cancelled in the turn that made it, it never begins.
        self._task.add_done_callback(over)

    async def ended(self) -> None:
        """Wait until the call and its tasks have ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    # Called by the stream

    def message_received(self, message: bytes) -> None:
        super().message_received(message)
        if self._is_finished:
            return
        pool = self._stream.connection.pool
        self._waiting.put_nowait(message)
        self._count_waiting(len(message) + _MESSAGE_BYTES)
        if self._waiting_bytes > SMALL_BODY_BYTES and pool.is_full:
            self.reject(no_room())
        elif self._waiting_bytes > _MOST_WAITING_BYTES:
            self._stream.pause()

    def end_received(self) -> None:
        self._waiting.put_nowait(None)

    def _count_waiting(self, size: int) -> None:
        self._waiting_bytes += size
        self._stream.connection.pool.used_bytes += size

    def _finished(self, status: int, code: Code = Code.OK) -> None:
        super()._finished(status, code)
        self._count_waiting(-self._waiting_bytes)
        if self._task is not None:
            self._task.cancel()

    # Between the two sides

    async def _relay(self, server: ServerStream) -> None:
        sending = asyncio.create_task(self._send_to(server))
        try:
            await self._receive_from(server)
        except Exception as error:
            self.failed(error)
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send_to(self, server: ServerStream) -> None:
        while (message := await self._waiting.get()) is not None:
            with contextlib.suppress(*_ENDED):
                await server.write(message)
            if self._is_finished:
                return
            self._count_waiting(-len(message) - _MESSAGE_BYTES)
            if self._waiting_bytes <= _MOST_WAITING_BYTES:
                self._stream.resume()
        with contextlib.suppress(*_ENDED):
            await server.done_writing()

    async def _receive_from(self, server: ServerStream) -> None:
        metadata = from_metadata(await server.initial_metadata())
        if metadata:
            self._stream.begin(metadata)
        with contextlib.suppress(*_ENDED):
            while isinstance(message := await server.read(), bytes):
                self._stream.send(message)
                if self._stream.unsent_bytes > _MOST_WAITING_BYTES:
                    await self._stream.sent()
        status = status_in(await server.code(), await server.details(), await server.trailing_metadata())
        code = Code(status.code)
        self._stream.finish(code, status.text, status.trailers)
        self._finished(status_of(code), code)
