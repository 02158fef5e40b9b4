"""The sleeping model, as numbers: how long it takes, and what that allows."""

from dataclasses import dataclass

BATCH_CAP = 64
# What a request costs besides the model, in seconds: the way to a server on the same machine and back.
_WAY_S = 0.0004


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """A model that takes `intercept_ms + slope_ms * rows` for a batch."""

    intercept_ms: float
    slope_ms: float

    def seconds(self, rows: int) -> float:
        """How long a batch of `rows` takes."""
        return (self.intercept_ms + self.slope_ms * rows) / 1000

    @property
    def capacity(self) -> float:
        """Requests per second that one worker answers in full batches."""
        return BATCH_CAP / self.seconds(BATCH_CAP)

    def limit(self, connections: int) -> float:
        """Requests per second that no server can pass for so many closed-loop clients and one worker."""
        return min(connections / (self.seconds(connections) + _WAY_S), self.capacity)
