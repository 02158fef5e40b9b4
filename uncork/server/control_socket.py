"""The Unix socket by which commands reach a server: named after the port, in a private folder."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from uncork.config.changes import Change
from uncork.server.private_folders import is_private, make_private, shared_folders

log = logging.getLogger("uncork.gateway")

RELOAD, DIFF = "reload", "diff"
"""What a server can be asked for: to reload, and what that would change."""

Handlers = Mapping[str, Callable[[], Awaitable["Outcome"]]]
"""What executes each command."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a request for people, and the exit code of the command that sent it.

    ``changes`` are those of the settings, for :data:`DIFF`.
    """

    code: int
    message: str
    changes: tuple[Change, ...] = ()


@contextlib.asynccontextmanager
async def listening(port: int, handlers: Handlers) -> AsyncIterator[None]:
    """Accept commands for the server on a port until the block ends.

    Closing the connection withdraws the request. If the socket cannot be made, the server logs a warning and
    runs without it.
    """
    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        answering.add(task)
        try:
            # Cancelled when the server ends; the other side sees its connection close.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                writer.write(msgspec.json.encode(await _reply(reader, handlers)))
                await writer.drain()
        finally:
            writer.close()
            answering.discard(task)

    try:
        path = _free_path(port)
        server = await asyncio.start_unix_server(answer, str(path))
    except OSError as error:
        log.warning(
            "`uncork reload` cannot reach this server, because its control socket cannot be opened: %s; "
            "to reload, send SIGHUP",
            error,
        )
        yield
        return
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)
        for task in filter(None, answering):
            task.cancel()


async def _reply(reader: asyncio.StreamReader, handlers: Handlers) -> Outcome:
    """Execute a command; raise ConnectionResetError if the client leaves first."""
    handler = handlers.get((await reader.readline()).decode(errors="replace").strip())
    if handler is None:
        return Outcome(2, f"unknown command; this server accepts only {' and '.join(handlers)}")
    running = asyncio.ensure_future(handler())
    closed = asyncio.create_task(reader.read())
    try:
        await asyncio.wait({running, closed}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ConnectionResetError
        return running.result()
    finally:
        for task in (running, closed):
            task.cancel()
        await asyncio.gather(running, closed, return_exceptions=True)


def _free_path(port: int) -> Path:
    """Return the path for the socket, after removing one that a killed server left behind."""
    places = shared_folders()
    folder = next((place for place in places if os.access(place.parent, os.W_OK | os.X_OK)), places[-1])
    make_private(folder)
    path = folder / f"{port}.sock"
    connection = _connected(path)
    if connection is not None:
        connection.close()
        raise OSError(f"{path} is in use by another server on port {port}")
    path.unlink(missing_ok=True)
    return path


def _connected(path: Path) -> socket.socket | None:
    """Connect to the server that listens at a path, if one does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def ask(port: int, command: str) -> Outcome:
    """Send a command to the server on a port, and wait for the result, with code 2 if there is no server."""
    paths = [folder / f"{port}.sock" for folder in shared_folders() if is_private(folder)]
    connections = (_connected(path) for path in paths)
    connection = next((one for one in connections if one is not None), None)
    if connection is None:
        return Outcome(
            2,
            f"no server of this user listens on port {port} of this machine; set --port, or run as the user "
            "of the server",
        )
    with connection, connection.makefile("rb") as answer:
        connection.sendall(f"{command}\n".encode())
        text = answer.read()
    try:
        return msgspec.json.decode(text, type=Outcome)
    except msgspec.DecodeError:
        return Outcome(1, f"the server stopped before the {command} was complete")
