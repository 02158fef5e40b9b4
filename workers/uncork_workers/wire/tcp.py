"""Options of TCP connections between gateway and workers."""

import socket

# A peer that is gone without a word, for example behind a broken network, is noticed within 10 s. Both are
# needed: keepalive probes are not sent while sent data is unacknowledged, and the user timeout does nothing
# on an idle connection. The kernel answers the probes, so a busy handler does not look like a lost peer.
KEEPALIVE_IDLE_S = 4
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_PROBES = 3
USER_TIMEOUT_S = 10


def tune(connection: socket.socket) -> None:
    """Send small frames at once, and notice a peer that has vanished.

    The options that a system does not have are left out: without ``TCP_USER_TIMEOUT``, which only Linux has,
    a peer that vanishes while it is sent data is noticed after minutes.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": USER_TIMEOUT_S * 1000,
    }
    for name, value in values.items():
        if (number := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
