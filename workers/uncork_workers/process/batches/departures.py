"""The requests of a running batch whose clients have left, and the time that the batch may take."""

import math
from collections.abc import Set

from uncork_workers.process.gateway_connection import GatewayConnection


class Departures:
    """The requests of a batch whose clients have left, as far as the worker has looked.

    Args:
        due: when its handler is cancelled, on the monotonic clock.

    Attributes:
        timed_out: whether it was.
        cancelled: whether all clients are known to have left. The connection forgets that with the reply.
        noticed: whether the worker did less, or may have, because clients had left. What the batch took then
            says nothing about other batches.
    """

    timed_out = False

    def __init__(self, sink: GatewayConnection, batch: int, requests: int, due: float = math.inf) -> None:
        self.due = due
        self._batch = batch
        self._requests = requests
        self._sink = sink
        self.cancelled = self.noticed = len(sink.left(batch)) >= requests

    def left(self) -> Set[int]:
        """Return the positions of the requests whose clients have left by now."""
        self._sink.look()
        left = self._sink.left(self._batch)
        self.noticed |= bool(left)
        self.cancelled |= len(left) >= self._requests
        return left

    def all_left(self) -> bool:
        """Return whether all clients have left by now; it counts as noticed only then."""
        self._sink.look()
        self.cancelled |= len(self._sink.left(self._batch)) >= self._requests
        self.noticed |= self.cancelled
        return self.cancelled

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when something arrives from the gateway."""
        return self._sink.fileno()

    def is_final(self) -> bool:
        """Return whether nobody else can leave: all have, or the gateway has closed the connection."""
        return self.all_left() or not self._sink.look()
