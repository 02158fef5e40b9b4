"""The states of a request inside the core."""

from __future__ import annotations

from enum import Enum


class RequestState(Enum):
    """Where a request is, or how it ended. The transitions are listed at the top of ``core.py``."""

    QUEUED = "queued"
    RUNNING = "running"
    QUARANTINED = "quarantined"
    """Queued again, to be retried alone, because its worker was lost."""
    RETRYING = "retrying"
    """Running alone, for the second time."""
    ANSWERED = "answered"
    SHED = "shed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    CANCELLED = "cancelled"
