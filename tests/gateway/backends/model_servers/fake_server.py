"""A model server on a real socket that answers by a script and records its requests."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

Header = tuple[bytes, bytes]


class Call(NamedTuple):
    """A request, with header names in lower case. ``connection`` counts the connections with requests."""

    method: bytes
    target: bytes
    headers: tuple[Header, ...]
    body: bytes
    connection: int

    def header(self, name: bytes) -> bytes | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) < 2, values
        return values[0] if values else None


class Reply(NamedTuple):
    """A reply; the connection breaks before the last ``missing`` bytes of its body."""

    body: bytes = b""
    status: int = 200
    headers: tuple[Header, ...] = ()
    missing: int = 0

    @property
    def data(self) -> bytes:
        lines = [b"HTTP/1.1 %d X" % self.status, b"content-length: %d" % (len(self.body) + self.missing)]
        lines += [b"%b: %b" % header for header in self.headers]
        return b"\r\n".join((*lines, b"", self.body))


Script = Callable[[Call], Reply | bytes | list[bytes] | None]
"""What to answer, or to write as it is; of a list, each piece by itself, which is a record of TLS.

None: nothing, until the client hangs up.
"""


class FakeServer:
    """One server."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.called = asyncio.Event()
        """Set by each call."""
        self.hung_up = asyncio.Event()
        """Set when a client that got no answer has closed its connection."""
        self.url = ""
        self._connections = 0
        self._port = 0
        self._tls = tls
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    @property
    def open_connections(self) -> int:
        return len(self._handlers)

    async def start(self) -> None:
        """Accept connections; after a stop, on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def refuse(self) -> None:
        """Accept no more connections."""
        assert self._server is not None
        self._server.close()

    def write(self, data: bytes) -> None:
        """Send bytes that nobody asked for on every connection."""
        for writer in self._writers:
            writer.write(data)

    async def stop(self) -> None:
        self.refuse()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self._writers.append(writer)
        try:
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await self._converse(reader, writer)
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = 0
        while (call := await read_call(reader)) is not None:
            connection = connection or self._next_connection()
            self.calls.append(call._replace(connection=connection))
            self.called.set()
            reply = self.script(self.calls[-1])
            if reply is None:
                await reader.read()
                self.hung_up.set()
                return
            if isinstance(reply, Reply):
                pieces, ends = [reply.data], bool(reply.missing)
            else:
                pieces = [reply] if isinstance(reply, bytes) else reply
                ends = b"connection: close" in pieces[0]
            for piece in pieces:
                writer.write(piece)
            await writer.drain()
            if ends:
                return

    def _next_connection(self) -> int:
        self._connections += 1
        return self._connections


async def read_call(reader: asyncio.StreamReader) -> Call | None:
    """Read a request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head[:-4].split(b"\r\n")
    method, target, _ = first.split(b" ")
    pairs = (line.partition(b":") for line in lines)
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    length = int(dict(headers).get(b"content-length", b"0"))
    return Call(method, target, headers, await reader.readexactly(length), 0)


@contextlib.asynccontextmanager
async def fake_server(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeServer]:
    server = FakeServer(script, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
