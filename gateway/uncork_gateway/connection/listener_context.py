"""The state that all connections of a listener share."""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING, Literal

from uncork_gateway.auth import AllowedOrigins, ApiKeys
from uncork_gateway.connection.bursts import Bursts
from uncork_gateway.connection.client_limits import MOST_REFUSED, ClientLimits
from uncork_gateway.connection.turn import Turn
from uncork_gateway.errors import PHRASES
from uncork_gateway.headers import Header, header_lines
from uncork_gateway.interfaces import BodyPool

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces

log = logging.getLogger("uncork.gateway")

_LOG_AGAIN_S = 60.0

Admission = Literal["accepted", "too many", "flooded"]
"""If it is flooded, no file is left even for a refusal: the connection must be closed without a response."""


class OpenConnections:
    """Counts the client connections of a process on all its ports, which share its limit of open files.

    Logs at most once a minute that some were refused. These have files of their own, not places of others.
    """

    def __init__(self) -> None:
        self.accepted = self.refused = 0
        self._logged_at = -_LOG_AGAIN_S

    def opened(self, most: int) -> Admission:
        """Count a new connection; say if ``most`` are accepted already, so that it must be refused."""
        if self.accepted < most:
            self.accepted += 1
            return "accepted"
        self.refused += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_AGAIN_S:
            self._logged_at = now
            log.warning(
                "refusing client connections: %d are open, the most that --max-connections and the limit of "
                "open files (ulimit -n) allow; raise them, or let clients reuse connections",
                most,
            )
        return "too many" if self.refused <= MOST_REFUSED else "flooded"

    def closed(self, admission: Admission) -> None:
        """Count the end of a connection for which :meth:`opened` returned ``admission``."""
        if admission == "accepted":
            self.accepted -= 1
        else:
            self.refused -= 1


connection_numbers = itertools.count(1)
"""The numbers of connections, of all listeners of the process; none is used twice."""


class ListenerContext:
    """The limits, memory, keys and observers of a listener's connections.

    Attributes:
        pool: the memory for bodies that are incomplete, or relayed unbatched.
        keys: the accepted API keys, if required; requests without one go to the ASGI app, which rejects them.
        origins: the origins whose pages may read responses of the fast path, if any besides the server's own.
        traces: creates a span per request on the fast path, if given.
        retiring: True if connections close after their pending responses, while new ones are still accepted.
        closing: True if the listener also refuses new requests.
        bursts: handles requests, and sends responses, in groups.
        turn: limits the work that small pieces of input cause.
        open: counts the connections of all listeners that share it.
        reserve: the number of connections that this listener accepts beyond the maximum.
    """

    def __init__(
        self,
        *,
        limits: ClientLimits | None = None,
        pool: BodyPool,
        traces: Traces | None = None,
        open_connections: OpenConnections | None = None,
        reserve: int = 0,
    ) -> None:
        self.limits = limits or ClientLimits()
        self.pool = pool
        self.keys: ApiKeys | None = None
        self.origins: AllowedOrigins | None = None
        self.access_log = False
        self.traces = traces
        self.retiring = self.closing = False
        self.bursts = Bursts()
        self.turn = Turn()
        self.open = open_connections or OpenConnections()
        self.reserve = reserve
        self._headers: list[Header] = []
        self._starts: dict[int, bytes] = {}

    def opened(self) -> Admission:
        """Count a new connection; see :meth:`OpenConnections.opened`."""
        return self.open.opened(self.limits.max_connections + self.reserve)

    def reply_start(self, status: int, headers: list[Header]) -> bytes:
        """Return the status line and the server's own headers, a list that uvicorn replaces every second."""
        if headers is not self._headers:
            self._headers = headers
            self._starts.clear()
        start = self._starts.get(status)
        if start is None:
            phrase = PHRASES.get(status, "").encode()
            start = b"HTTP/1.1 %d %b\r\n%b" % (status, phrase, header_lines(headers))
            self._starts[status] = start
        return start
