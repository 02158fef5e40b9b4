"""uvicorn's HTTP protocol, with one system call per reply instead of two.

uvicorn writes head and body apart, and the event loop passes each write on at once. On small replies the
second call costs as much as all that the gateway does in Python.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# What is passed on at once: the transport below tells uvicorn when a client reads too slowly.
_MUCH_BYTES = 64 * 1024


class GatheringTransport(asyncio.Transport):
    """Passes on what was written in one turn of the loop as one write, at the end of the turn."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[bytes | bytearray | memoryview] = []
        self._held_bytes = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Hold ``data`` until the end of the turn, or until there is much of it."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _MUCH_BYTES:
            self._flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Hold all of it."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close when everything has been sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))

    # What follows only passes on.

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Ask for example for the ``peername``."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Deliver no data for a while."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Deliver data again."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection over."""
        self._transport.set_protocol(protocol)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol over a transport that gathers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the gathering transport between."""
        gathering = GatheringTransport(cast(asyncio.Transport, transport), asyncio.get_running_loop())
        super().connection_made(gathering)
