"""The states of a request inside the core."""

from __future__ import annotations

from enum import Enum


class RequestState(Enum):
    """Where a request is, or how it ended. For the transitions, see the top of ``core.py``."""

    QUEUED = "queued"
    RUNNING = "running"
    REQUEUED = "requeued"
    """Queued again with the rest of its batch, because their worker was lost."""
    REPEATING = "repeating"
    """Running with the rest of its batch, for the second time."""
    QUARANTINED = "quarantined"
    """Queued again, to run alone, because its batch was lost twice."""
    RETRYING = "retrying"
    """Running alone, for the third time."""
    ANSWERED = "answered"
    SHED = "shed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    CANCELLED = "cancelled"
