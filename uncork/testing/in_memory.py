"""HTTP between a client and a server in one event loop, without sockets.

The client is httpx without its network layer; the server is a real connection of the gateway.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

from uncork.testing.in_process import InProcess
from uncork_gateway.connection.protocol import HttpProtocol

_ORIGIN = httpcore.Origin(b"http", b"testserver", 80)
_HTTPCORE_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)


class InMemoryTransport(httpx.AsyncBaseTransport):
    """Passes requests of an httpx client to a server in the same loop, on connections that are kept alive.

    Args:
        server: a started server.
        raise_handler_errors: raise the service's exception from the request instead of returning 500 or 502.
    """

    def __init__(self, server: InProcess, *, raise_handler_errors: bool) -> None:
        self._server = server
        self._raises = raise_handler_errors
        self._connections: list[httpcore.AsyncHTTP11Connection] = []
        # httpcore's own pool scans all connections for each request, which is slow with hundreds of them.
        self._idle: list[httpcore.AsyncHTTP11Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response when the headers have arrived."""
        response = await self._exchange(request)
        if self._raises and response.is_server_error:
            content = await _content(response)
            failure = self._server.failure_behind(response.status_code, content.decode(errors="replace"))
            if failure is not None:
                try:
                    raise failure
                finally:
                    del failure  # else the traceback refers to the exception
            response = _with_content(response, content)
        return response

    async def aclose(self) -> None:
        """Close all connections; pending requests fail."""
        for connection in list(self._connections):
            await connection.aclose()

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        sent = httpcore.Request(
            request.method,
            # The host does not matter: there is only this server.
            httpcore.URL(scheme=_ORIGIN.scheme, host=_ORIGIN.host, target=request.url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        connection = self._take()
        with _as_httpx_errors():
            answer = await connection.handle_async_request(sent)
        assert isinstance(answer.stream, AsyncIterable)
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(
                answer.stream, ended=lambda: self._ended(connection), failure=lambda: self._failure(answer)
            ),
            extensions=answer.extensions,
        )

    def _failure(self, answer: httpcore.Response) -> Exception | None:
        """Return the exception that interrupted a streamed response."""
        batch_id = dict(answer.headers).get(b"x-batch-id", b"")
        return self._server.failure_in_batch(batch_id.decode()) if self._raises else None

    def _take(self) -> httpcore.AsyncHTTP11Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
        stream = _ClientEnd(_ServerEnd(self._server.connection()))
        connection = httpcore.AsyncHTTP11Connection(_ORIGIN, stream)
        self._connections.append(connection)
        return connection

    def _ended(self, connection: httpcore.AsyncHTTP11Connection) -> None:
        if connection.is_idle():
            self._idle.append(connection)


class _Body(httpx.AsyncByteStream):
    """The body of a response.

    Args:
        ended: called when the body is closed.
        failure: returns the exception to raise if the body is incomplete.
    """

    def __init__(
        self,
        pieces: AsyncIterable[bytes],
        *,
        ended: Callable[[], None],
        failure: Callable[[], Exception | None],
    ) -> None:
        self._pieces = pieces
        self._ended = ended
        self._failure = failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            with _as_httpx_errors():
                async for piece in self._pieces:
                    yield piece
        except httpx.RemoteProtocolError as error:
            raise self._failure() or error from None

    async def aclose(self) -> None:
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()
        self._ended()


@contextmanager
def _as_httpx_errors() -> Iterator[None]:
    """Raise errors of httpcore as those of httpx, which have the same names."""
    try:
        yield
    except _HTTPCORE_ERRORS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


async def read_whole(response: httpx.Response) -> httpx.Response:
    """Return a response with its whole body, which any thread can read."""
    return _with_content(response, await _content(response))


async def _content(response: httpx.Response) -> bytes:
    return b"".join([piece async for piece in response.aiter_raw()])


def _with_content(response: httpx.Response, content: bytes) -> httpx.Response:
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(content),
        extensions=response.extensions,
    )


async def send_together(
    requests: Sequence[httpx.Request], send: Callable[[httpx.Request], Awaitable[httpx.Response]]
) -> list[httpx.Response]:
    """Send requests so that all arrive in one iteration of the server's loop.

    Raises:
        Exception: the first error, after all have been answered.
    """
    gate = _Gate()

    async def one(request: httpx.Request) -> httpx.Response:
        _gate.set(gate)
        try:
            return await send(request)
        finally:
            gate.passed(())

    tasks = [asyncio.create_task(one(request)) for request in requests]
    gate.expected.update(tasks)
    responses = []
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        responses.append(outcome)
    return responses


class _Gate:
    """Delays the deliveries of tasks until all tasks have arrived or ended."""

    def __init__(self) -> None:
        self.expected: set[asyncio.Task[Any] | None] = set()
        self._deliveries: list[Callable[[], None]] = []

    def passed(self, deliver: Iterable[Callable[[], None]]) -> None:
        """Note that the current task has arrived, with its deliveries; none if it failed."""
        self.expected.discard(asyncio.current_task())
        self._deliveries += deliver
        if not self.expected:
            deliveries, self._deliveries = self._deliveries, []
            for deliver_one in deliveries:
                deliver_one()


_gate: ContextVar[_Gate | None] = ContextVar("_gate", default=None)


class _ServerEnd(asyncio.Transport):
    """The server's transport: keeps the data until the client reads it."""

    def __init__(self, protocol: HttpProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._written = bytearray()
        self._changed = asyncio.Event()
        self._closed = False
        protocol.connection_made(self)

    def arrive(self, data: bytes) -> None:
        """Pass data of the client to the server."""
        if not self._closed:
            self._protocol.data_received(data)

    async def take(self, max_bytes: int) -> bytes:
        """Wait for data of the server; empty if it has closed."""
        while not (self._written or self._closed):
            self._changed.clear()
            await self._changed.wait()
        taken = bytes(self._written[:max_bytes])
        del self._written[:max_bytes]
        return taken

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += data
        self._changed.set()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._changed.set()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self._written.clear()
        self.close()

    def write_eof(self) -> None:
        """The client closes after the response that says so."""

    def is_closing(self) -> bool:
        return self._closed

    def get_write_buffer_size(self) -> int:
        return len(self._written)

    def pause_reading(self) -> None:
        """A client that waits for each response sends only one request."""

    def resume_reading(self) -> None:
        """Reading is never paused."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class _ClientEnd(httpcore.AsyncNetworkStream):
    """The client's stream. A request is delivered whole, when the client waits for its response."""

    def __init__(self, server: _ServerEnd) -> None:
        self._server = server
        self._unsent = b""

    # httpcore names the parameters.
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self._unsent:
            gate = _gate.get() or _Gate()
            gate.passed([self._deliver])
        try:
            async with asyncio.timeout(timeout):
                return await self._server.take(max_bytes)
        except TimeoutError:
            raise httpcore.ReadTimeout(f"no response within {timeout:g} s") from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._unsent += buffer

    async def aclose(self) -> None:
        self._server.close()

    def get_extra_info(self, info: str) -> Any:
        # httpcore asks this of idle connections: one is readable if the server has closed it.
        return self._server.is_closing() if info == "is_readable" else None

    def _deliver(self) -> None:
        data, self._unsent = self._unsent, b""
        self._server.arrive(data)
