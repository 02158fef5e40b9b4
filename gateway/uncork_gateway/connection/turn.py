"""Limits the work that clients cause in one turn of the event loop, besides their requests."""

import asyncio
from collections import deque
from typing import Protocol

from uncork_gateway.errors import unexpected

CHUNK_WORK = 1
"""The work of one piece of a body over HTTP. A unit takes about 2 µs."""
HEAD_WORK = 25
FRAME_WORK = 2
FIELD_WORK = 5
"""The work of one header field that HPACK decodes."""
BLOCK_BYTES_PER_WORK = 2
"""The bytes of a header block for which HPACK does one unit of work."""
MESSAGE_WORK = 25
TURN_WORK = 2500
# A connection that waits does not wait for all the input of those before it.
_SHARE_WORK = 500
_FIRST_WORK = 250


class WaitingConnection(Protocol):
    """A connection with unread input."""

    transport: asyncio.Transport

    def go_on(self) -> None:
        """Read more input; call :meth:`Turn.wait` again if some is left."""


class Turn:
    """The work of all connections of a listener in one turn of the event loop.

    Small pieces of input cost more than their bytes. Connections subtract that work from ``left``; at zero
    they leave the rest of their input for later turns, in which they continue in order, each with a share.

    Attributes:
        left: the work that remains for this turn.
    """

    def __init__(self) -> None:
        self.left = TURN_WORK
        self._waiting: deque[WaitingConnection] = deque()
        self._is_scheduled = False

    def admit(self) -> None:
        """Allow some work for a connection that has received input, so that small requests need not wait.

        Allow none if the turn's work is more than twice used up, because many connections may send at once.
        """
        if self.left > -TURN_WORK:
            self.left = max(self.left, _FIRST_WORK)

    def wait(self, connection: WaitingConnection) -> None:
        """Let a connection continue in a later turn; it must not be waiting already."""
        self._waiting.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn with the connections that wait. An exception closes its connection."""
        left = TURN_WORK
        while self._waiting and left > 0:
            connection = self._waiting.popleft()
            share = self.left = min(left, _SHARE_WORK)
            try:
                connection.go_on()
            except Exception as error:
                unexpected(error)
                connection.transport.close()
            left -= share - self.left
        self.left = left
        self._is_scheduled = False
        if self._waiting:
            self._schedule()
