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
# Many small answers may be on their way to a client that reads: those of all streams of a connection.
_LEAST_UNSENT_BYTES = 64 * 2**20


@dataclass(kw_only=True, slots=True)
class GrpcLimits:
    """Limits that follow from the settings, which may change them at any time.

    Open connections keep their age and the times; their next message has the new sizes.

    Attributes:
        max_message_bytes: of a message that a client sends, compressed and decompressed.
        max_streams: open at a time on one connection; further ones are refused with REFUSED_STREAM.
        max_unsent_bytes: if a client leaves more than this of earlier answers of a connection unread, its
            next answer is replaced by a reset.
        unread_timeout_s: a client that reads nothing of an answer for this time loses it.
        max_connection_age_s: after this time, ±10 %, a connection is drained.
        max_connection_age_grace_s: for calls on such a connection; then they are cancelled.
    """

    max_message_bytes: int
    max_streams: int = 1000
    max_unsent_bytes: int = _LEAST_UNSENT_BYTES
    unread_timeout_s: float = 30.0
    max_connection_age_s: float = math.inf
    max_connection_age_grace_s: float = math.inf

    def limit_messages(self, max_bytes: int) -> None:
        """Set the largest message, and what may be unsent with it."""
        self.max_message_bytes = max_bytes
        self.max_unsent_bytes = max(max_bytes, _LEAST_UNSENT_BYTES)


class Allowance:
    """A token bucket for actions of a client, with a rate that no real client reaches.

    Attributes:
        tokens: what is left; calls add to it.

    Args:
        per_s: tokens that come back every second.
        burst: most tokens.
        clock: returns seconds.
    """

    __slots__ = ("_at", "_burst", "_clock", "_per_s", "tokens")

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self.tokens = burst
        self._at = clock()

    def spend(self) -> bool:
        """Take a token; returns False if there is none."""
        now = self._clock()
        self.tokens = min(self._burst, self.tokens + (now - self._at) * self._per_s) - 1
        self._at = now
        return self.tokens >= 0
