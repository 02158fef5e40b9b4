"""Windows for clients while the memory for incomplete messages is used up."""

import asyncio
from typing import Protocol

from uncork_gateway.interfaces import BodyPool

# HTTP requests use the pool, too, and nobody reports that they are complete.
_LOOK_EVERY_S = 0.02


class StarvedConnection(Protocol):
    """A connection whose client waits for a window."""

    @property
    def has_incomplete_messages(self) -> bool: ...
    def widen_all(self) -> None:
        """Give the client all windows that it waits for."""


class Starved:
    """The connections whose clients wait, in the order in which they began.

    They get windows when the pool has space. The first one gets them anyway, until its messages are complete:
    else the pool could be full of messages of which none will ever be complete.
    """

    def __init__(self, pool: BodyPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._waiting: dict[StarvedConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def waits(self, connection: StarvedConnection) -> bool:
        """Return whether a client cannot send because of the pool."""
        return connection in self._waiting and not self._is_first(connection)

    def _is_first(self, connection: StarvedConnection) -> bool:
        return next(iter(self._waiting)) is connection

    def must_wait(self, connection: StarvedConnection) -> bool:
        """Return whether a connection gets no window now; it then gets one later."""
        if self._pool.used_bytes < self._pool.max_bytes:
            return False
        self._waiting[connection] = None
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        return not self._is_first(connection)

    def forget(self, connection: StarvedConnection) -> None:
        self._waiting.pop(connection, None)

    def _look(self) -> None:
        self._timer = None
        for connection in list(self._waiting):
            is_full = self._pool.used_bytes >= self._pool.max_bytes
            if is_full and not self._is_first(connection):
                break
            connection.widen_all()
            if not (is_full and connection.has_incomplete_messages):
                del self._waiting[connection]
        if self._waiting:
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
