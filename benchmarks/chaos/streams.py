"""Connections on which a client does as it likes; answers are read one by one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from uncork_loadtests.generator.http_reply import Head, Reply, parse_head
from uncork_loadtests.servers import HOST

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_LONGEST_HEAD = 8192


@asynccontextmanager
async def connected(port: int, *, receive_bytes: int | None = None) -> AsyncIterator[Stream]:
    """A connection until the block ends; ``receive_bytes`` is how much may lie unread on its way."""
    connection = socket.socket()
    connection.setblocking(False)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (HOST, port))
    except BaseException:
        connection.close()
        raise
    reader, writer = await asyncio.open_connection(sock=connection, limit=_LONGEST_HEAD)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_reply(reader: asyncio.StreamReader, *, has_body: bool = True) -> Reply | None:
    """The next answer; None if the connection was closed before it was whole. One to HEAD has no body.

    Raises:
        ReplyError: if what comes is no answer.
    """
    try:
        while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 1"):
            pass  # what follows is the answer
        if b"\r\ncontent-length:" not in head.lower():
            status = parse_head(head[:-2] + b"content-length: 0\r\n").status
            body = await reader.read()
            return Reply(Head(status, len(body), False, None), body)
        parsed = parse_head(head[:-2])
        return Reply(parsed, await reader.readexactly(parsed.length or 0) if has_body else b"")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def fetch(port: int, path: str, *, within_s: float = 10.0) -> bytes | None:
    """The body of a page; None if the gateway did not give it in time."""
    try:
        async with asyncio.timeout(within_s), connected(port) as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: chaos\r\n\r\n".encode())
            reply = await read_reply(reader)
    except OSError:  # TimeoutError is one
        return None
    return reply.body if reply is not None and reply.head.status == 200 else None
