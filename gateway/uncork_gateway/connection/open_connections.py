"""The client connections of a process, on all of its ports: they share its open files."""

import logging
import time

log = logging.getLogger("uncork.gateway")

# Above the maximum, so many connections may be open that wait for their refusal to be read.
_MOST_REFUSED = 16
_LOG_AGAIN_S = 60.0


class OpenConnections:
    """Counts connections, and logs once a minute that further ones are refused.

    Attributes:
        count: the open connections.
    """

    def __init__(self) -> None:
        self.count = 0
        self._logged_at = -_LOG_AGAIN_S

    def opened(self, most: int) -> bool:
        """Count a connection; return False if it must be refused because more than ``most`` are open."""
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
        """Return True if there is no file left for a refusal; the connection must be closed without one."""
        return self.count > most + _MOST_REFUSED

    def closed(self) -> None:
        """Note that a connection has closed."""
        self.count -= 1
