"""How ``uncork reload`` reaches a server: a Unix socket named after the port, in a private folder."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from uncork.server.private_folders import is_private, make_private, shared_folders

log = logging.getLogger("uncork.gateway")

_RELOAD = b"reload\n"


class Outcome(msgspec.Struct, frozen=True):
    """What came of a wish, for people, and the exit code of whoever had it."""

    code: int
    message: str


class NoServer(Exception):
    """There is nobody to ask; the message says where it was looked."""


@contextlib.asynccontextmanager
async def listening(port: int, reload: Callable[[], Awaitable[Outcome]]) -> AsyncIterator[None]:
    """Take wishes for the server on a port until the block ends.

    Who wished something and leaves before it is done does not wish it any more. A server that cannot be
    reached in this way says so in its log, and goes on.
    """

    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        answering.add(task)
        try:
            # Cancelled when the server ends; the other side sees its connection close.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                writer.write(msgspec.json.encode(await _fulfil(reader, reload)))
                await writer.drain()
        finally:
            writer.close()
            answering.discard(task)

    try:
        path = _free_path(port)
        server = await asyncio.start_unix_server(answer, str(path))
    except OSError as error:
        log.warning("`uncork reload` will not find this server, SIGHUP does the same: %s", error)
        yield
        return
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)
        for task in filter(None, answering):
            task.cancel()


async def _fulfil(reader: asyncio.StreamReader, reload: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """What came of a wish; it is given up if the other side closes the connection."""
    if await reader.readline() != _RELOAD:
        return Outcome(2, "this server knows only how to reload")
    fulfilling = asyncio.ensure_future(reload())
    closed = asyncio.create_task(reader.read())
    try:
        await asyncio.wait({fulfilling, closed}, return_when=asyncio.FIRST_COMPLETED)
        if not fulfilling.done():
            raise ConnectionResetError
        return fulfilling.result()
    finally:
        for task in (fulfilling, closed):
            task.cancel()
        await asyncio.gather(fulfilling, closed, return_exceptions=True)


def _free_path(port: int) -> Path:
    """Where the socket goes; the one of a server that was killed makes room."""
    folder = next(place for place in shared_folders() if place.parent.is_dir())
    make_private(folder)
    path = folder / f"{port}.sock"
    connection = _connected(path)
    if connection is not None:
        connection.close()
        raise OSError(f"{path} is that of another server on port {port}")
    path.unlink(missing_ok=True)
    return path


def _connected(path: Path) -> socket.socket | None:
    """A connection to the server that listens there, if one does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def ask_to_reload(port: int) -> Outcome:
    """Have the server on a port reload, and wait for what comes of it.

    Raises:
        NoServer: if none is there.
    """
    paths = [folder / f"{port}.sock" for folder in shared_folders() if is_private(folder)]
    connections = (_connected(path) for path in paths)
    connection = next((one for one in connections if one is not None), None)
    if connection is None:
        raise NoServer(f"no server of this user listens on port {port} of this machine")
    with connection, connection.makefile("rb") as answer:
        connection.sendall(_RELOAD)
        text = answer.read()
    try:
        return msgspec.json.decode(text, type=Outcome)
    except msgspec.DecodeError:
        return Outcome(1, "the server has ended")
