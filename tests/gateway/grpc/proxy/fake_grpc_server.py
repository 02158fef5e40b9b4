"""A gRPC model server that answers by a script, message by message, and records its calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from uncork_gateway.grpc.statuses import Code

Pairs = tuple[tuple[str, str | bytes], ...]
_CODES = {code.value[0]: code for code in grpc.StatusCode}
# Metadata that grpcio sets.
_OWN = ("user-agent", "grpc-accept-encoding", "accept-encoding")


@dataclass(kw_only=True)
class Call:
    """A call; ``messages`` grows while the client sends.

    Attributes:
        time_left_s: until the client's deadline, at the begin.
    """

    path: str
    metadata: Pairs
    messages: list[bytes]
    time_left_s: float | None

    @property
    def body(self) -> bytes:
        (message,) = self.messages
        return message


@dataclass(kw_only=True)
class Reply:
    """What to send after the client's messages; the code ends the call."""

    messages: tuple[bytes, ...] = ()
    code: Code = Code.OK
    text: str = ""
    metadata: Pairs = ()
    trailers: Pairs = ()


def ok(message: bytes) -> Reply:
    """Return the reply of a unary call that succeeds."""
    return Reply(messages=(message,))


Script = Callable[[Call], Reply | None]
"""What to answer to a call when the client has sent all its messages; None: nothing."""


class FakeGrpcServer(grpc.GenericRpcHandler):
    """One server, without health checks by default.

    Attributes:
        script: what to answer.
        checks: scripts of health checks by path; these are not in ``calls``.
        calls: all calls.
        checked: the paths of all health checks.
        cancelled: set when the client gives up a call.
        talk: whether to send back each message at once instead of following the script.
        reads: read messages only when it is set.
        unwritten: messages of the latest reply that the client's windows have not let pass.
    """

    def __init__(self, script: Script, *, tls: grpc.ServerCredentials | None = None) -> None:
        self.script = script
        self.checks: dict[str, Script] = {}
        self.calls: list[Call] = []
        self.checked: list[str] = []
        self.cancelled = asyncio.Event()
        self.talk = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.unwritten = 0
        self.port = 0
        self._tls = tls
        self._news = asyncio.Event()
        self._server: aio.Server | None = None

    @property
    def url(self) -> str:
        return f"{'grpc' if self._tls is None else 'grpcs'}://127.0.0.1:{self.port}"

    async def start(self, **options: int) -> None:
        """Accept connections; after a stop, on the same port."""
        self._server = aio.server(options=[(f"grpc.{name}", value) for name, value in options.items()])
        self._server.add_generic_rpc_handlers((self,))
        address = f"127.0.0.1:{self.port}"
        if self._tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._tls)
        await self._server.start()

    async def stop(self) -> None:
        """Break all connections and accept no more."""
        assert self._server is not None
        await self._server.stop(grace=None)

    async def called(self, times: int) -> None:
        """Wait until there were this many calls."""
        while len(self.calls) < times:
            await self.news()

    async def news(self) -> None:
        """Wait for a call or a message."""
        self._news.clear()
        await self._news.wait()

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        if path in ("/grpc.health.v1.Health/Check", "/inference.GRPCInferenceService/ServerReady"):
            self.checked.append(path)
            if path not in self.checks:
                return None
        return grpc.stream_stream_rpc_method_handler(self._serve(handler_call_details))

    def _serve(self, details: Any) -> Any:
        async def serve(messages: AsyncIterator[bytes], context: aio.ServicerContext[Any, Any]) -> None:
            metadata = tuple((key, value) for key, value in details.invocation_metadata if key not in _OWN)
            call = Call(
                path=details.method, metadata=metadata, messages=[], time_left_s=context.time_remaining()
            )
            check = self.checks.get(details.method)
            if check is None:
                self.calls.append(call)
            try:
                self._news.set()
                await self.reads.wait()
                async for message in messages:
                    call.messages.append(message)
                    self._news.set()
                    if self.talk:
                        if len(call.messages) == 1:
                            await context.send_initial_metadata((("x-talks", "1"),))
                        await context.write(message)
                if self.talk:
                    return
                reply = (check or self.script)(call)
                if reply is None:
                    await asyncio.Event().wait()
                    raise AssertionError
                await self._answer(context, reply)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        return serve

    async def _answer(self, context: aio.ServicerContext[Any, Any], reply: Reply) -> None:
        if reply.metadata:
            await context.send_initial_metadata(reply.metadata)
        self.unwritten = len(reply.messages)
        for message in reply.messages:
            await context.write(message)
            self.unwritten -= 1
        context.set_trailing_metadata(reply.trailers)
        if reply.code:
            context.set_code(_CODES[reply.code])
            context.set_details(reply.text)


@contextlib.asynccontextmanager
async def fake_grpc_server(
    script: Script, *, tls: grpc.ServerCredentials | None = None, **options: int
) -> AsyncIterator[FakeGrpcServer]:
    """A running server; ``options`` are grpcio's, without ``grpc.``."""
    server = FakeGrpcServer(script, tls=tls)
    await server.start(**options)
    try:
        yield server
    finally:
        await server.stop()
