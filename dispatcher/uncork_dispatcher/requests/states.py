"""The states of a request inside the core::


    state        event                              next state
    -----------  ---------------------------------  -----------
    (new)        submit                             QUEUED
    QUEUED       release                            RUNNING
    QUEUED       expiry, displaced by another flow  SHED
    RUNNING      batch_done                         ANSWERED
    RUNNING      timeout of the batch               TIMED_OUT
    RUNNING      worker_lost, API is idempotent     REQUEUED
    RUNNING      worker_lost, API is not            LOST
    REQUEUED     release, with its whole batch      REPEATING
    REQUEUED     expiry                             SHED
    REPEATING    batch_done                         ANSWERED
    REPEATING    timeout of the batch               TIMED_OUT
    REPEATING    worker_lost, API is idempotent     QUARANTINED
    REPEATING    worker_lost, API is not any more   LOST
    REPEATING    timeout of another batch           REQUEUED
    QUARANTINED  release, alone in its batch        RETRYING
    QUARANTINED  expiry                             SHED
    RETRYING     batch_done                         ANSWERED
    RETRYING     timeout of the batch               TIMED_OUT
    RETRYING     worker_lost                        LOST
    RETRYING     timeout of another batch           QUARANTINED
    all these    cancel                             CANCELLED

A running request whose client's time passes has :class:`Expired`: the driver cancels or extends it.
"""

from __future__ import annotations

from enum import Enum


class RequestState(Enum):
    """Where a request is, or how it ended."""

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
