"""A model server that writes any bytes as a response."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable

from tests.gateway.backends.model_servers.fake_server import Call, read_call

RawScript = Callable[[Call], bytes | list[bytes]]
"""What to write; of a list, each piece by itself, which is a record of TLS."""


class RawServer:
    """One server; ``calls`` have the numbers of their connections."""

    def __init__(self, script: RawScript) -> None:
        self.calls: list[Call] = []
        self.connections = 0
        self.url = ""
        self._script = script
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection; an answer without a length ends it."""
        self.connections += 1
        number = self.connections
        self._writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while (call := await read_call(reader)) is not None:
                self.calls.append(call._replace(connection=number))
                answer = self._script(self.calls[-1])
                pieces = [answer] if isinstance(answer, bytes) else answer
                for piece in pieces:
                    writer.write(piece)
                await writer.drain()
                if b"connection: close" in pieces[0]:
                    break
        writer.close()

    def write(self, data: bytes) -> None:
        """Send bytes that nobody asked for on every connection."""
        for writer in self._writers:
            writer.write(data)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def raw_server(script: RawScript, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """A running server."""
    raw = RawServer(script)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls)
    raw.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        raw.close()
        await server.wait_closed()
