"""Handles the requests of one turn of the event loop together, and sends the responses of a batch together.

Handling a request takes 20 µs after a system call and 13 µs after another request, because the kernel evicts
code and data from the CPU caches. So connections read all requests of a turn before handling them, and
prepare all responses of a batch before sending them. Polling the sockets instead of sleeping made a lone
client slower.
"""

from __future__ import annotations

import asyncio

from uncork_gateway.connection.parts import ConnectionOfParts
from uncork_gateway.connection.route_table import Known
from uncork_gateway.errors import unexpected

# Larger requests and replies are handled one by one: they would take much memory together, and gain little.
SMALL_BYTES = 16 * 1024
# The first client of a large batch does not wait for all other replies.
_MOST_REPLIES = 64


class Bursts:
    """Requests queued until the end of a turn of the event loop, and responses until that of a batch.

    Inside ``with bursts:``, responses are queued until the block ends.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[ConnectionOfParts, Known, bytes]] = []
        self._in_turn = False
        """True if a request has arrived in this turn of the event loop."""
        self._replies: list[tuple[asyncio.Transport, bytes]] = []
        self._holds_replies = False

    def arrived(self, connection: ConnectionOfParts, known: Known, body: bytes) -> None:
        """Handle the first request of a turn at once, because most come alone, and queue the others."""
        if self._in_turn:
            connection.is_waiting = True
            self._waiting.append((connection, known, body))
        else:
            self._in_turn = True
            asyncio.get_running_loop().call_soon(self._end_turn)
            connection.begin(known, body)

    def submit_waiting(self) -> None:
        """Handle the queued requests. An exception closes the connection of its request."""
        waiting, self._waiting = self._waiting, []
        for connection, known, body in waiting:
            try:
                connection.begin(known, body)
            except Exception as error:
                unexpected(error)
                connection.transport.close()

    def _end_turn(self) -> None:
        self._in_turn = False
        if self._waiting:
            self.submit_waiting()

    def send(self, transport: asyncio.Transport, reply: bytes) -> None:
        """Send a response, or queue it inside ``with``; its connection must not write until then."""
        if self._holds_replies and len(reply) <= SMALL_BYTES:
            self._replies.append((transport, reply))
            if len(self._replies) == _MOST_REPLIES:
                self._send_all()
        else:
            transport.write(reply)

    def __enter__(self) -> None:
        self._holds_replies = True

    def __exit__(self, *error: object) -> None:
        self._holds_replies = False
        self._send_all()

    def _send_all(self) -> None:
        replies, self._replies = self._replies, []
        for transport, reply in replies:
            if not transport.is_closing():
                transport.write(reply)
