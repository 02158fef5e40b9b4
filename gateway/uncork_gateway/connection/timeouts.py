"""Limits on the time that a client may take to send, and that its connection may stay idle."""

import asyncio
import contextlib
import socket
import struct

from uncork_dispatcher.wording import plural
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.connection.parts import ConnectionOfParts
from uncork_gateway.connection.state import State
from uncork_gateway.errors import Unreadable

MIN_BODY_BYTES_PER_S = 500
"""Less than a telephone line carries; so low that no real upload is taken for an attack."""
_LINGER_S = 5.0
_NO_LINGER = struct.pack("ii", 1, 0)


class Timeouts:
    """The only timer of a connection. It checks the connection's progress at regular intervals.

    Requests therefore need no timers, and a timeout may be late by half of the shortest one.
    """

    def __init__(
        self,
        connection: ConnectionOfParts,
        limits: ClientLimits,
        *,
        keep_alive_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._keep_alive_s = keep_alive_s
        self._interval_s = min(limits.head_timeout_s, limits.body_timeout_s, keep_alive_s) / 2
        self._loop = loop
        self._progress = (State.IDLE, 0, 0)
        self._restart()
        self._timer = loop.call_later(self._interval_s, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def linger(self, transport: asyncio.Transport) -> None:
        """Stop all checks, send no more, and abort the connection after five seconds."""
        self._timer.cancel()
        self._timer = abort_later(transport, self._loop)

    def _restart(self) -> None:
        self._since = self._loop.time()
        self._body_bytes = self._connection.body_bytes

    def _check(self) -> None:
        connection = self._connection
        self._timer = self._loop.call_later(self._interval_s, self._check)
        progress = (connection.state, connection.begun, connection.answered)
        if progress != self._progress or connection.flow.read_paused:
            self._progress = progress
            self._restart()
            return
        waited_s = self._loop.time() - self._since
        match connection.state:
            case State.IDLE if not connection.is_answering:
                limit_s = self._keep_alive_s if connection.answered else self._limits.head_timeout_s
                if waited_s >= limit_s:
                    connection.close()
            case State.HEAD if waited_s >= self._limits.head_timeout_s:
                limit_s = self._limits.head_timeout_s
                connection.give_up(Unreadable(f"the request headers took longer than {limit_s:g} s", 408))
            case State.BODY if waited_s >= self._limits.body_timeout_s:
                self._check_body(waited_s)

    def _check_body(self, waited_s: float) -> None:
        grown_bytes = self._connection.body_bytes - self._body_bytes
        if grown_bytes < MIN_BODY_BYTES_PER_S * waited_s:
            self._connection.give_up(slow_body(grown_bytes, waited_s))
        self._restart()


def abort_later(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle:
    """Send no more, and abort the connection after five seconds; at once if the client has reset it."""
    try:
        transport.write_eof()
    except OSError:  # the loop has not noticed yet
        transport.abort()
    return loop.call_later(_LINGER_S, transport.abort)


def reset(transport: asyncio.Transport) -> None:
    """Abort the connection so that the client sees an error: after ``abort`` alone, it sees a normal end."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # Unix sockets have no reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def slow_body(grown_bytes: int, waited_s: float) -> Unreadable:
    """Return the error for a body that arrives too slowly."""
    return Unreadable(
        f"the request body is too slow: {plural(grown_bytes, 'byte')} in {waited_s:.0f} s; send "
        f"at least {MIN_BODY_BYTES_PER_S} bytes per second",
        408,
    )
