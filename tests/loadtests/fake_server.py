"""A tiny HTTP server for tests of clients: real sockets, scripted replies."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Gets the body of a request and writes whatever the test wants the client to see."""


def reply(body: bytes, *, status: str = "200 OK", fields: str = "") -> bytes:
    """Build the bytes of a reply; `fields` are further header lines, each ended by CRLF."""
    head = f"HTTP/1.1 {status}\r\ncOnTent-leNgth:  {len(body)} \r\n{fields}\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    """Build a chunk of a reply; an empty one is the last."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked(*chunks: bytes, status: str = "200 OK") -> bytes:
    """Build the bytes of a whole reply in chunks."""
    head = f"HTTP/1.1 {status}\r\ntrAnsfer-encoDing: Chunked\r\n\r\n"
    return head.encode() + b"".join(map(chunk, (*chunks, b"")))


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on a free port until the block ends; yield the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"Content-Length: (\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                await handler(body, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}/predict"


@contextlib.asynccontextmanager
async def serving_batches(answer: Callable[[Sequence[int]], bytes]) -> AsyncIterator[str]:
    """Serve requests that come together as a batch.

    ``answer`` makes the reply to each from the lengths of all their bodies.
    """
    held: list[tuple[int, asyncio.StreamWriter]] = []

    async def handle(body: bytes, writer: asyncio.StreamWriter) -> None:
        held.append((len(body), writer))
        if len(held) == 1:
            # All requests of a batch are here when the loop has nothing else to do.
            asyncio.get_running_loop().call_later(0.02, release)

    def release() -> None:
        batch, held[:] = held[:], []
        for _, writer in batch:
            writer.write(answer([length for length, _ in batch]))

    async with serving(handle) as url:
        yield url
