"""Counts the client connections of a process on all its ports, which share its limit of open files."""

import logging
import time

log = logging.getLogger("uncork.gateway")

# Above the maximum, so many connections may be open that wait for their refusal to be read.
_MOST_REFUSED = 16
_LOG_AGAIN_S = 60.0


class OpenConnections:
    """Counts connections, and logs at most once a minute that some were refused.

    Attributes:
        count: the number of open connections.
    """

    def __init__(self) -> None:
        self.count = 0
        self._logged_at = -_LOG_AGAIN_S

    def opened(self, most: int) -> bool:
        """Count a new connection; return False if more than ``most`` are open, so that it must be refused."""
        self.count += 1
        if self.count <= most:
            return True
        now = time.monotonic()
        if now - self._logged_at >= _LOG_AGAIN_S:
            self._logged_at = now
            log.warning(
                "refusing client connections: %d are open, the most that --max-connections and the limit of "
                "open files (ulimit -n) allow; raise them, or let clients reuse connections",
                most,
            )
        return False

    def is_flooded(self, most: int) -> bool:
        """Return True if no file is left even for refusals; close the connection without a response."""
        return self.count > most + _MOST_REFUSED

    def closed(self) -> None:
        self.count -= 1
