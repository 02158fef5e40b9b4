"""A batch that a worker runs, or will run next."""

from __future__ import annotations

from dataclasses import dataclass

from uncork_dispatcher.actions import Start
from uncork_dispatcher.requests.queue import Entry


@dataclass(slots=True, eq=False)
class Running:
    """A batch at a worker. Times are on the core's clock."""

    start: Start
    entries: list[Entry]
    started: float
    """For a batch ahead, this is the predicted time until it has started."""
    timeout_s: float
    """How long it may run."""
    transport_s: float = 0.0
    """How long batches of its API usually spend on the way to the worker and back."""
    spread_s: float = 0.0
    """The standard deviation of its time at the worker."""

    @property
    def finish(self) -> float:
        """When the worker should be done with it."""
        return self.started + self.start.predicted_s

    @property
    def gives_up_at(self) -> float:
        """When it is abandoned."""
        return self.started + self.timeout_s
