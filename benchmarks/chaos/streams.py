"""Connections on which a client may misbehave, with answers read one at a time."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from uncork_loadtests.generator.http_reply import Reply, ReplyParser
from uncork_loadtests.servers import HOST

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_MAX_HEAD = 8192
_PAGE_S = 10.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@asynccontextmanager
async def connected(port: int, *, receive_bytes: int | None = None) -> AsyncIterator[Stream]:
    """Open a connection until the block ends; ``receive_bytes`` limits its receive buffer."""
    connection = socket.socket()
    connection.setblocking(False)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (HOST, port))
    except BaseException:
        connection.close()
        raise
    reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_HEAD)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_reply(reader: asyncio.StreamReader, *, has_body: bool = True) -> Reply | None:
    """Return the next answer; None if the connection closed before its end. A reply to HEAD has no body.

    Unlike the generator, this accepts replies that end with their connection.

    Raises:
        ReplyError: if the bytes are not an answer.
    """
    try:
        while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 1"):
            pass  # an interim reply
        length = _LENGTH.search(head)
        # Parsed without its body, which may be of any length.
        reply = ReplyParser().feed(_LENGTH.sub(b"", head)[:-2] + b"content-length: 0\r\n\r\n")
        if reply is None or not has_body:
            return reply
        body = await (reader.readexactly(int(length[1])) if length else reader.read())
        return reply._replace(body=body)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def fetch(port: int, path: str) -> bytes | None:
    """Return the body of a page; None if there is no 200 in time."""
    try:
        async with asyncio.timeout(_PAGE_S), connected(port) as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: chaos\r\n\r\n".encode())
            reply = await read_reply(reader)
    except OSError:  # TimeoutError is one
        return None
    return reply.body if reply is not None and reply.status == 200 else None
