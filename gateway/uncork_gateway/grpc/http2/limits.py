"""Limits on the clients of a gRPC listener, in addition to :class:`ClientLimits`."""

import math
from collections.abc import Callable
from dataclasses import dataclass

CONTROL_PER_S = 500.0
CONTROL_PER_CALL = 4
CONTROL_PER_MESSAGE = 2
"""grpc-go sends pings with the messages that it receives, to estimate the bandwidth."""
FREE_FIELDS = 32
"""Header fields of a call that cost nothing; the others cost more than their bytes."""
FIELDS_PER_CONTROL = 8
RESETS_PER_S = 200.0
WINDOWS_PER_CONTROL = 8
"""A change of INITIAL_WINDOW_SIZE changes the windows of all streams."""
# Many small answers may be on their way to a client that reads: those of all streams of a connection.
_LEAST_UNSENT_BYTES = 64 * 2**20


@dataclass(kw_only=True, slots=True)
class GrpcLimits:
    """The limits that follow from the settings and may change at any time.

    Open connections keep their age limit and timeouts; new message sizes apply from the next message on.

    Attributes:
        max_message_bytes: the largest message that a client may send, compressed or decompressed.
        max_streams: the most open streams per connection; further ones get REFUSED_STREAM.
        max_unsent_bytes: the most unread response bytes per connection; beyond, further responses become
            resets.
        unread_timeout_s: the time after which a client loses a response of which it reads nothing.
        max_connection_age_s: the age, ±10 %, at which a connection is drained.
        max_connection_age_grace_s: the time that calls on a drained connection get before they are cancelled.
    """

    max_message_bytes: int
    max_streams: int = 1000
    max_unsent_bytes: int = _LEAST_UNSENT_BYTES
    unread_timeout_s: float = 30.0
    max_connection_age_s: float = math.inf
    max_connection_age_grace_s: float = math.inf

    def limit_messages(self, max_bytes: int) -> None:
        """Set the largest message, and adapt the limit of unsent bytes."""
        self.max_message_bytes = max_bytes
        self.max_unsent_bytes = max(max_bytes, _LEAST_UNSENT_BYTES)


class Allowance:
    """A token bucket that limits one kind of action of a client, at a rate that no real client reaches.

    Attributes:
        tokens: the tokens left; calls add some.

    Args:
        per_s: the tokens added per second.
        burst: the most tokens.
    """

    __slots__ = ("_at", "_burst", "_clock", "_per_s", "tokens")

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self.tokens = burst
        self._at = clock()

    def spend(self, tokens: float = 1) -> bool:
        """Take tokens; return False if too few are left."""
        now = self._clock()
        self.tokens = min(self._burst, self.tokens + (now - self._at) * self._per_s) - tokens
        self._at = now
        return self.tokens >= 0
