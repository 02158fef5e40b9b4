"""The sleeping model in numbers: its execution time, and the throughput that it allows."""

from dataclasses import dataclass

BATCH_CAP = 64
# Round trip to a server on the same machine.
_ROUND_TRIP_S = 0.0004


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """A model that takes `intercept_ms + slope_ms * rows` for a batch."""

    intercept_ms: float
    slope_ms: float

    def seconds(self, rows: int) -> float:
        """Return the execution time of a batch."""
        return (self.intercept_ms + self.slope_ms * rows) / 1000

    @property
    def capacity(self) -> float:
        """Requests per second of one worker in full batches."""
        return BATCH_CAP / self.seconds(BATCH_CAP)

    def limit(self, connections: int) -> float:
        """Return the highest possible requests per second for these closed-loop clients and one worker."""
        return min(connections / (self.seconds(connections) + _ROUND_TRIP_S), self.capacity)
